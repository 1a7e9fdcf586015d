"""The result of a causal map: what each unit of a site does to every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from marlnb.analysis.interventions.result import Effect, direct_outcome, names_of_returns
from marlnb.analysis.results import ALPHA, Result
from marlnb.display.formatting import count, format_interval, format_number
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True)
class UnitEffects:
    """The effects of editing one unit.

    Attributes:
        site: site name.
        unit: its index at the site.
        effects: one for each outcome; `p_holm` is corrected for all units and outcomes of the map.
    """

    site: str
    unit: int
    effects: tuple[Effect, ...]

    def __repr__(self) -> str:
        return f"<unit {self.unit} of {self.site}: {count(len(self.effects), 'effect')}>"

    def of(self, outcome: str, who: str = "") -> Effect:
        """One effect.

        Raises:
            AnalysisError: there is none; the message lists those available.
        """
        for effect in self.effects:
            if effect.outcome == outcome and effect.who == who:
                return effect
        available = [f"({effect.outcome}, {effect.who!r})" for effect in self.effects]
        raise AnalysisError(f"no effect on ({outcome}, {who!r}); available: {', '.join(available)}")


@dataclass(frozen=True, repr=False)
class CausalMap(Result):
    """The effect of every unit, each edited by itself, on every outcome.

    Attributes:
        edit: the edit of each unit, as plain data.
        groups: by group of the environment, its agents.
        units: in the order of sites and units.
        settings: the options, enough to repeat the map.
        warnings: reasons not to trust the result.
    """

    MAX_HTML_ROWS: ClassVar[int | None] = 12

    edit: dict[str, Any]
    groups: dict[str, tuple[str, ...]]
    units: tuple[UnitEffects, ...]
    settings: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def of(self, unit: int, outcome: str, who: str = "", *, site: str | None = None) -> Effect:
        """The effect of one unit on one outcome; the outcomes are those of `Intervention`.

        Raises:
            AnalysisError: no such unit or outcome; or several sites and none chosen.
        """
        matches = {each.unit: each for each in self.of_site(site)}
        if unit not in matches:
            raise AnalysisError(f"no unit {unit} in this map; it has {_ranges(sorted(matches))}")
        return matches[unit].of(outcome, who)

    def of_site(self, site: str | None = None) -> tuple[UnitEffects, ...]:
        """The units of a site; None: of the only site.

        Raises:
            AnalysisError: no such site; or several and none chosen.
        """
        sites = self.sites
        if site is None and len(sites) > 1:
            raise AnalysisError(f"this map has several sites: give site=, one of {list(sites)}")
        name = sites[0] if site is None else site
        if name not in sites:
            raise AnalysisError(unknown("site in this causal map", name, sites))
        return tuple(each for each in self.units if each.site == name)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.site for each in self.units))

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents of the environment."""
        return tuple(chain.from_iterable(self.groups.values()))

    @property
    def names_of_returns(self) -> list[str]:
        """Whose returns show what the units do: each group's mean, or those of agents where the mean hides it."""
        return names_of_returns(self.groups, [each.effects for each in self.units])

    def table(self) -> pd.DataFrame:
        """One row for each unit and outcome."""
        rows = [{"site": each.site, "unit": each.unit, **asdict(e)} for each in self.units for e in each.effects]
        return pd.DataFrame(rows)

    @property
    def verdict(self) -> str:
        clauses = [self._clause(text, names[0]) for text, names in self._alike.items()]
        what = f"{len(self.units)} units of {', '.join(self.sites)}"
        episodes = self.settings.get("episodes", "?")
        return (
            f"{self.edit['edit']} of each of {what}, one at a time: {'; '.join(clauses)}; {episodes} episodes a unit, "
            "each compared with itself without the edit, Holm over all units and outcomes; what units do together was "
            "not tested."
        )

    @property
    def _alike(self) -> dict[str, list[str]]:
        """By text, as "speaker and listener", whose returns change alike, as those of groups that share a reward."""
        alike: dict[tuple[object, ...], list[str]] = {}
        for name in self.names_of_returns:
            effects = (each.of("return", name) for each in self.units)
            alike.setdefault(tuple((e.difference, e.low, e.high, e.p_holm) for e in effects), []).append(name)
        return {" and ".join(names): names for names in alike.values()}

    def _clause(self, text: str, name: str) -> str:
        """How many units change a return, and the largest change; text: all names that have this return."""
        effects = [each.of("return", name) for each in self.units]
        shown = [k for k, effect in enumerate(effects) if effect.p_holm is not None and effect.p_holm <= ALPHA]
        if not shown:
            widest = max((max(abs(e.low), abs(e.high)) for e in effects), default=np.nan)
            return f"none is shown to change the return of {text} (no interval goes beyond {format_number(widest, 3)})"
        largest = max(shown, key=lambda k: abs(effects[k].difference))
        unit, effect = self.units[largest], effects[largest]
        number = f"unit {unit.unit}" + (f" of {unit.site}" if len(self.sites) > 1 else "")
        interval = format_interval(effect.difference, effect.low, effect.high, signed=True)
        numbers = f"{interval} (p = {effect.p_holm:.2g})"
        return f"{len(shown)} change the return of {text}, {number} by {numbers}, the most"

    def _repr_table(self) -> pd.DataFrame:
        """One row a unit, the largest effects on returns first."""
        choices, alike = direct_outcome(self.units[0].effects), self._alike
        rows = []
        firsts = [names[0] for names in alike.values()]

        def largest_change(each: UnitEffects) -> float:
            return max(abs(each.of("return", name).difference) for name in firsts)

        for each in sorted(self.units, key=largest_change, reverse=True):
            row: dict[str, Any] = {"site": each.site, "unit": each.unit}
            for text, names in alike.items():
                effect = each.of("return", names[0])
                row[f"return of {text}"] = format_interval(effect.difference, effect.low, effect.high, signed=True)
                row[f"p (Holm), {text}"] = effect.p_holm
            moved = [e.difference for e in each.effects if e.outcome == choices and e.edited and e.who in self.agents]
            row[f"{choices} (edited agents)"] = float(np.mean(moved)) if moved else np.nan
            rows.append(row)
        return pd.DataFrame(rows)

    def _html_table(self) -> pd.DataFrame:
        return self._repr_table()


def _ranges(units: Sequence[int]) -> str:
    """As "0 to 63", or all of them where some are missing."""
    return f"{units[0]} to {units[-1]}" if units == [*range(units[0], units[-1] + 1)] else ", ".join(map(str, units))

"""The answer to an intervention: what changed, for whom, by how much, and how far that can be trusted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError

Actions = dict[str, tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]]


@dataclass(frozen=True)
class Effect:
    """One outcome with and without the edits, paired over episodes.

    Attributes:
        outcome: return (undiscounted, of an episode), length (steps), value (the critic's, mean over the agent's
            steps), label (mean over an episode's steps), label_end (at its last step), and of actions:
            changed_direct, tv_direct, kl_direct (at the moments of the episodes without edits: what the agent would
            have done there) and changed_total, tv_total, kl_total (along the two episodes, at equal steps).
        who: the agent, the group, or the label's name; empty for the whole episode.
        edited: whether an edit touches that agent, or its group has another partner's policy.
        n: episodes. before, after: means without and with. Of an action's outcome `before` is 0: it is a distance.
        difference, low, high: the mean paired difference and its 95% interval, of the t test or bootstrapped over
            episodes (`settings["intervals"]`).
        p_value: of the paired t test; None for a distance, which is never below zero.
        p_holm: the same, corrected for all tests of this arm.
        detectable: the smallest difference that as many episodes would have shown in 80 of 100 cases.
    """

    outcome: str
    who: str
    edited: bool
    units: str
    n: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    p_value: float | None
    p_holm: float | None
    detectable: float | None

    @property
    def seen(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Arm:
    """The effects of the edits at one dose (None: as they were given).

    Attributes:
        actions: of each agent with discrete actions: the choices, and the share of its steps at which it took each,
            without and with the edits.
    """

    dose: float | None
    effects: tuple[Effect, ...]
    actions: Actions = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Intervention:
    """What edits, or other partners, did.

    Attributes:
        edits: as plain data; partners: by group, whose policy took over. agents: all of the environment's.
        settings: what it was made with, enough to repeat it.
        returns: by agent, each episode's return without edits, and with those of each arm.
        warnings: why this must not be trusted; empty where nothing is known against it.
    """

    edits: tuple[dict[str, Any], ...]
    partners: dict[str, str]
    agents: tuple[str, ...]
    arms: tuple[Arm, ...]
    settings: dict[str, Any]
    returns: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Those of the only arm.

        Raises:
            AnalysisError: there are several doses.
        """
        if len(self.arms) != 1:
            raise AnalysisError(f"which dose? there are {[arm.dose for arm in self.arms]}: table(), or of(..., dose=)")
        return self.arms[0].effects

    def of(self, outcome: str, who: str = "", *, dose: float | None = None) -> Effect:
        """One effect.

        Raises:
            AnalysisError: there is none; the message names those that there are.
        """
        arms = [arm for arm in self.arms if dose is None or arm.dose == dose]
        found = [e for arm in arms for e in arm.effects if e.outcome == outcome and e.who == who]
        if len(found) != 1:
            have = ", ".join(sorted({f"({e.outcome}, {e.who!r})" for arm in self.arms for e in arm.effects}))
            doses = [arm.dose for arm in self.arms]
            raise AnalysisError(
                f"{len(found)} effects of ({outcome!r}, {who!r}) at dose {dose}; there are: {have}; doses {doses}"
            )
        return found[0]

    def table(self) -> pd.DataFrame:
        """One line an effect and dose."""
        rows = [{"dose": arm.dose, **asdict(effect)} for arm in self.arms for effect in arm.effects]
        table = pd.DataFrame(rows)
        return table.drop(columns="dose") if len(self.arms) == 1 and self.arms[0].dose is None else table

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}

    def __repr__(self) -> str:
        made = [edit["edit"] + " " + edit["site"] for edit in self.edits]
        made += [f"{group} from {whose}" for group, whose in self.partners.items()]
        arm = max(self.arms, key=lambda arm: abs(arm.dose or 0.0))
        told = "; ".join(
            f"{e.who} {e.difference:+.3g} [{e.low:.3g}, {e.high:.3g}]"
            for e in arm.effects
            if e.outcome == "return" and e.who in self.agents
        )
        at = "" if arm.dose is None else f" at dose {arm.dose:g}"
        flag = doubts(self.warnings)
        return f"Intervention({', '.join(made)}{at}: return {told}; {self.settings.get('episodes')} episodes{flag})"

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())

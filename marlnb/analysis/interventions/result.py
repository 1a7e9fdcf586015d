"""The result of an intervention: what changed, for whom, by how much, and how reliable that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from math import isfinite
from typing import Any

import pandas as pd

from marlnb.analysis.interventions.action_sensitivity import NEGLIGIBLE
from marlnb.analysis.results import ALPHA, Result
from marlnb.display.array_summary import FieldsSummary
from marlnb.display.formatting import count, format_interval
from marlnb.errors import AnalysisError, unknown
from marlnb.training.shared_return import is_zero_sum

ActionShares = dict[str, tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]]
"""By agent with discrete actions: the actions' names, and the share of its steps of each without and with edits."""


@dataclass(frozen=True, repr=False)
class Effect(FieldsSummary):
    """One outcome with and without the edits, paired over episodes.

    Attributes:
        outcome: return (undiscounted, per episode), length (steps), value (the critic's, mean over the agent's steps),
            label (mean over an episode's steps), label_end (at its last step), and for actions: changed_direct,
            tv_direct, kl_direct (policies compared on the states of the unedited episodes) and changed_total,
            tv_total, kl_total (the two episodes compared at equal steps).
        who: the agent, the group, or the label's name; empty for the whole episode.
        units: of `before`, `after` and `difference`.
        edited: whether an edit touches that agent, or its group has another partner's policy.
        n: episodes.
        before: mean without edits; 0 for the outcomes of actions, which are distances.
        after: mean with edits.
        difference: mean paired difference.
        low: lower end of its 95% interval, from the t test or the bootstrap (`settings["intervals"]`).
        high: upper end of its 95% interval.
        p_value: of the paired t test; None for a distance, which is never below zero.
        p_holm: the p-value corrected for all tests of this arm.
        detectable: the smallest difference that this many episodes would detect with probability 0.8.
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
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Arm:
    """The effects of the edits at one strength.

    Attributes:
        strength: None: as the edits were given.
        effects: one for each outcome.
        actions: how often each agent chose each action, see `ActionShares`.
        by_class: by class of what is `given`, as "goal = red", the effects in its episodes; `p_holm` corrects for all
            classes and outcomes together.
    """

    strength: float | None
    effects: tuple[Effect, ...]
    actions: ActionShares = field(default_factory=dict, repr=False)
    by_class: Mapping[str, tuple[Effect, ...]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        strength = "" if self.strength is None else f" of strength {self.strength:g}"
        return f"<Arm{strength}: {count(len(self.effects), 'effect')}>"


def direct_outcome(effects: Sequence[Effect]) -> str:
    """The measure of actions on the same states among these: total variation, or KL, or changed actions."""
    outcomes = {effect.outcome for effect in effects}
    return next((name for name in ("tv_direct", "kl_direct", "changed_direct") if name in outcomes), "")


def names_of_returns(groups: Mapping[str, Sequence[str]], arms: Sequence[Sequence[Effect]]) -> list[str]:
    """Whose returns show what the edits did: each group's mean, or those of agents where the mean hides it.

    Where the agents of a group earn differently and only some are edited, it is these. Where they play against each
    other, so that their mean is always 0, it is all of them.

    Args:
        groups: by group, its agents.
        arms: the effects of each arm.
    """
    by_name: dict[str, list[Effect]] = {}
    for effect in chain.from_iterable(arms):
        if effect.outcome == "return":
            by_name.setdefault(effect.who, []).append(effect)
    names: list[str] = []
    for group, agents in groups.items():
        by_arm = list(zip(*(by_name[agent] for agent in agents)))
        means = [number for e in by_name[group] for number in _numbers(e)]
        returns = [number for effects in by_arm for e in effects for number in _numbers(e)]
        opposed = is_zero_sum(means, max(map(abs, filter(isfinite, returns)), default=0.0))
        different = opposed or any(len(set(map(_numbers, effects))) > 1 for effects in by_arm)
        if different and any(0 < sum(e.edited for e in effects) < len(agents) for effects in by_arm):
            names += [agent for agent in agents if any(e.edited for e in by_name[agent])]
        else:
            names += agents if opposed else [group]
    return names


def _numbers(effect: Effect) -> tuple[float, ...]:
    return effect.before, effect.after, effect.low, effect.high


@dataclass(frozen=True, repr=False)
class Intervention(Result):
    """The effects of edits, or of other partners.

    Attributes:
        edits: as plain data.
        partners: by group, whose policy played it in the edited episodes.
        groups: by group of the environment, its agents.
        arms: one for each strength, or a single one.
        settings: the options, enough to repeat the intervention.
        returns: by agent, each episode's return without edits, and with those of each arm.
        notes: facts that are no reason for distrust.
        warnings: reasons not to trust the result.
    """

    edits: tuple[dict[str, Any], ...]
    partners: dict[str, str]
    groups: dict[str, tuple[str, ...]]
    arms: tuple[Arm, ...]
    settings: dict[str, Any]
    returns: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents of the environment."""
        return tuple(chain.from_iterable(self.groups.values()))

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects of the only arm.

        Raises:
            AnalysisError: there are several strengths.
        """
        if len(self.arms) != 1:
            strengths = [arm.strength for arm in self.arms]
            raise AnalysisError(f"there are several strengths, {strengths}: use table(), or of(..., strength=)")
        return self.arms[0].effects

    def of(self, outcome: str, who: str = "", *, strength: float | None = None, given: str | None = None) -> Effect:
        """One effect.

        Args:
            given: a class, such as "goal = red": the effect in its episodes; None: in all episodes.
        Raises:
            AnalysisError: there is none or more than one; the message lists those available.
        """
        arms = [arm for arm in self.arms if strength is None or arm.strength == strength]
        classes = list(self.arms[0].by_class)
        if given is not None and given not in classes:
            raise AnalysisError(unknown("class of what is given", given, classes))
        by_arm = [arm.effects if given is None else arm.by_class[given] for arm in arms]
        matches = [e for effects in by_arm for e in effects if e.outcome == outcome and e.who == who]
        if len(matches) != 1:
            available = ", ".join(sorted({f"({e.outcome}, {e.who!r})" for arm in self.arms for e in arm.effects}))
            raise AnalysisError(
                f"{len(matches)} effects match ({outcome!r}, {who!r}) at strength {strength}; available: {available}; "
                f"strengths: {[arm.strength for arm in self.arms]}"
            )
        return matches[0]

    def table(self) -> pd.DataFrame:
        """One row for each strength and effect; with something given, also for each class."""
        lines = [
            {"strength": arm.strength, "given": name, **asdict(effect)}
            for arm in self.arms
            for name, effects in {"": arm.effects, **arm.by_class}.items()
            for effect in effects
        ]
        table = pd.DataFrame(lines)
        single = len(self.arms) == 1 and self.arms[0].strength is None
        return table.drop(columns=["strength"] * single + ["given"] * (not self.arms[0].by_class))

    @property
    def verdict(self) -> str:
        arm = self._strongest_arm
        changes = [f"{edit['edit']} at {edit['site']}" for edit in self.edits]
        changes += [f"{group} played by {partner}" for group, partner in self.partners.items()]
        strength = "" if arm.strength is None else f" (strength {arm.strength:g})"
        returns = self._returns(arm)
        clauses = []
        for numbers, same in groupby(returns, key=lambda e: (e.difference, e.low, e.high)):
            members = list(same)
            p = min(1.0 if e.p_holm is None else e.p_holm for e in members)
            names = " and ".join(e.who for e in members)
            shown = "changes by" if p <= ALPHA else "is not shown to change:"
            clauses.append(f"the return of {names} {shown} {format_interval(*numbers, signed=True)} (p = {p:.2g})")
        direct = self._direct(arm)
        if direct:
            e = max(direct, key=lambda effect: effect.difference)
            moved = f"{format_interval(e.difference, e.low, e.high, 2)} ({e.units})"
            clauses.append(f"the actions of {e.who} on the same states by {moved}")
        text = f"With {', '.join(changes)}{strength}, {', '.join(clauses)}"
        nothing = all((e.p_holm or 1.0) > ALPHA for e in returns) and not any(e.low > NEGLIGIBLE for e in direct)
        if nothing and self.edits:
            text += "; whether other units replace the edited ones was not tested"
        episodes = self.settings.get("episodes", "?")
        return f"{text}; each of {episodes} episodes is compared with itself without edits, Holm over all outcomes."

    @property
    def _strongest_arm(self) -> Arm:
        """Whose edits change actions on the same states most: not every edit is strongest at the largest number."""

        def change(arm: Arm) -> float:
            return max((e.difference for e in self._direct(arm) if isfinite(e.difference)), default=0.0)

        return max(self.arms, key=change)

    def _direct(self, arm: Arm) -> list[Effect]:
        """How much the actions of edited agents change on the same states."""
        outcome = direct_outcome(arm.effects)
        return [e for e in arm.effects if e.edited and e.outcome == outcome and e.who in self.agents]

    def _returns(self, arm: Arm) -> list[Effect]:
        """Of each group, or of its agents; groups compete, so there is no mean over them."""
        by_name = {effect.who: effect for effect in arm.effects if effect.outcome == "return"}
        return [by_name[name] for name in names_of_returns(self.groups, [arm.effects])]

    def _repr_table(self) -> pd.DataFrame:
        arm = self._strongest_arm
        outcome = direct_outcome(arm.effects)
        returns = [("", effect) for effect in self._returns(arm)]
        edited = {effect.who for _, effect in returns if effect.edited} or {effect.who for _, effect in returns}
        by_class = [
            (name, effect)
            for name, effects in arm.by_class.items()
            for effect in effects
            if effect.outcome == "return" and effect.who in edited
        ]
        direct = [("", e) for e in arm.effects if e.outcome == outcome and e.who in self.agents]
        table = pd.DataFrame(
            [
                {
                    "outcome": effect.outcome,
                    "of": effect.who,
                    "given": name,
                    "without": effect.before,
                    "with": effect.after,
                    "difference": format_interval(effect.difference, effect.low, effect.high, signed=True),
                    "p (Holm)": effect.p_holm,
                }
                for name, effect in [*returns, *by_class, *direct]
            ]
        )
        return table if by_class else table.drop(columns="given")

"""The result of an intervention: what changed, for whom, by how much, and how reliable that is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from marlnb.analysis.results import Result
from marlnb.errors import AnalysisError

ActionShares = dict[str, tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]]]
"""By agent with discrete actions: the actions' names, and the share of its steps of each without and with edits."""


@dataclass(frozen=True)
class Effect:
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
    """

    strength: float | None
    effects: tuple[Effect, ...]
    actions: ActionShares = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Intervention(Result):
    """The effects of edits, or of other partners.

    Attributes:
        edits: as plain data.
        partners: by group, whose policy played it in the edited episodes.
        agents: all agents of the environment.
        arms: one for each strength, or a single one.
        settings: the options, enough to repeat the intervention.
        returns: by agent, each episode's return without edits, and with those of each arm.
        warnings: reasons not to trust the result.
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
        """The effects of the only arm.

        Raises:
            AnalysisError: there are several strengths.
        """
        if len(self.arms) != 1:
            strengths = [arm.strength for arm in self.arms]
            raise AnalysisError(f"there are several strengths, {strengths}: use table(), or of(..., strength=)")
        return self.arms[0].effects

    def of(self, outcome: str, who: str = "", *, strength: float | None = None) -> Effect:
        """One effect.

        Raises:
            AnalysisError: there is none or more than one; the message lists those available.
        """
        arms = [arm for arm in self.arms if strength is None or arm.strength == strength]
        matches = [e for arm in arms for e in arm.effects if e.outcome == outcome and e.who == who]
        if len(matches) != 1:
            available = ", ".join(sorted({f"({e.outcome}, {e.who!r})" for arm in self.arms for e in arm.effects}))
            raise AnalysisError(
                f"{len(matches)} effects match ({outcome!r}, {who!r}) at strength {strength}; available: {available}; "
                f"strengths: {[arm.strength for arm in self.arms]}"
            )
        return matches[0]

    def table(self) -> pd.DataFrame:
        """One row for each strength and effect."""
        table = pd.DataFrame(
            [{"strength": arm.strength, **asdict(effect)} for arm in self.arms for effect in arm.effects]
        )
        return table.drop(columns="strength") if len(self.arms) == 1 and self.arms[0].strength is None else table

    def __repr__(self) -> str:
        changes = [f"{edit['edit']} {edit['site']}" for edit in self.edits]
        changes += [f"{group} from {partner}" for group, partner in self.partners.items()]
        arm = max(self.arms, key=lambda arm: abs(arm.strength or 0.0))
        returns = "; ".join(
            f"{e.who} {e.difference:+.3g} [{e.low:.3g}, {e.high:.3g}]"
            for e in arm.effects
            if e.outcome == "return" and e.who in self.agents
        )
        strength = "" if arm.strength is None else f" at strength {arm.strength:g}"
        return (
            f"Intervention({', '.join(changes)}{strength}: return {returns}; {self.settings.get('episodes')} episodes"
            f"{self.remarks})"
        )

"""mediation: which units a label sets and the agent's choices hang on, so that the one acts through the other.

A probe's directions are differences of means. Where a label works as a gate (this landmark's place counts while that is
the goal) the means hardly differ and random directions through the same units do as much, so `usage` sees nothing. Unit
by unit the two halves of the way can still be shown: the label moves the unit, and the unit moves the choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd

from marlnb.analysis.data.duplicate_episodes import episode_hashes, duplicate_warnings
from marlnb.analysis.data.trajectories import roll_out
from marlnb.analysis.interventions.intervene import FEW_EPISODES, MOST_COPIES, PolicySourceLike
from marlnb.analysis.interventions.usage import NEGLIGIBLE, Trial
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.errors import AnalysisError
from marlnb.models.hooks.edits_directions import Erase
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import as_policy_source
from marlnb.training.runs.run import Which

LEVEL = 0.05


@dataclass(frozen=True)
class Mediation:
    """The tuned units of one agent at a site, and how much its choices hang on each.

    Attributes:
        unit: `[tuned unit]`, the most strongly tuned first; p_tuned: as `Tuning` has it.
        effect, low, high: `[tuned unit]`, how far the action distributions move at the same moments when the unit is
            held at its mean, with a 95% t interval over episodes, in `units`.
        p_effect: `[tuned unit]`, one-sided, that the effect is no more than `negligible`; Holm over the tuned units.
    """

    by: str
    site: str
    agent: str
    units: str
    negligible: float
    unit: np.ndarray
    p_tuned: np.ndarray
    effect: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_effect: np.ndarray
    warnings: tuple[str, ...] = ()

    @property
    def p_value(self) -> np.ndarray:
        """`[tuned unit]`, that one half of the way or the other is missing: the larger of the two."""
        return np.maximum(self.p_tuned, self.p_effect)

    @property
    def mediators(self) -> np.ndarray:
        """Units through which the label reaches the choices."""
        return self.unit[self.p_value <= LEVEL]

    def table(self) -> pd.DataFrame:
        """One line a tuned unit."""
        names = ("unit", "p_tuned", "effect", "low", "high", "p_effect", "p_value")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        told = ", ".join(map(str, self.mediators.tolist())) or "none"
        return (
            f"Mediation({self.by} at {self.site}, {self.agent}: {len(self.unit)} units tuned, mediators {told}{flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())


def mediation(
    subject: PolicySourceLike,
    tuned: Tuning,
    *,
    episodes: int = 100,
    seed: int = 1000,
    negligible: float = NEGLIGIBLE,
    checkpoint: Which = "last",
    n_envs: int | None = None,
    explore: bool = False,
) -> Mediation:
    """Which of the units that are tuned to a label the agent's choices hang on.

    The second half is an intervention, each tuned unit held at its mean by itself; the first is what `tuning` saw, so a
    label that only goes along with what sets the unit is named as well. Nothing is said of units among which a label is
    spread so that holding one of them changes little: `usage` is for those.

    Raises:
        AnalysisError: a critic's units, which choose nothing.
    Source: MacKinnon et al. 2002, A Comparison of Methods to Test Mediation, the test of joint significance.
    """
    subject = as_policy_source(subject)
    group = next((g for g in subject.spec.groups if tuned.agent in g.agents), None)
    if group is None or "/critic/" in tuned.site:
        raise AnalysisError(
            f"{tuned.site!r} of {tuned.agent!r} chooses no actions; the agents are {subject.spec.agents}"
        )
    origin = subject.origin(checkpoint)
    policies = subject.policies(origin.iteration)
    copies = min(episodes, n_envs or min(subject.n_envs, MOST_COPIES))
    with subject.build_env(copies) as env:
        check_fit(subject.spec, env.spec)
        plain = [
            roll_out(
                env, policies, (), seed=seed, first=first, explore=explore, labels=False,
                episodes=min(copies, episodes - first),
            )
            for first in range(0, episodes, copies)
        ]  # fmt: skip
    trial = Trial(policies, group.name, group.agents.index(tuned.agent), tuned.agent, plain)
    found = [
        paired_test(trial.effect([Erase(tuned.site, (direction,), agents=(tuned.agent,))]))
        for direction in tuned.directions()
    ]
    p = np.array([_above(each.mean, each.high, each.n, negligible) for each in found])
    same = duplicate_warnings([episode for track in plain for episode in episode_hashes(track)], greedy=not explore)
    notes = list(dict.fromkeys((*tuned.warnings, *same)))
    if episodes < FEW_EPISODES:
        notes.append(f"{episodes} episodes are few: intervals from fewer than {FEW_EPISODES} are rough")
    return Mediation(
        tuned.by, tuned.site, tuned.agent, trial.units, negligible, tuned.tuned, tuned.p_value[tuned.tuned],
        np.array([each.mean for each in found]), np.array([max(each.low, 0.0) for each in found]),
        np.array([each.high for each in found]), holm(p), tuple(notes),
    )  # fmt: skip


def _above(mean: float, high: float, n: int, negligible: float) -> float:
    """One-sided p-value that a mean with this 95% t interval is no more than negligible."""
    from scipy.special import stdtr, stdtrit  # scipy.stats takes seconds to import

    if n < 2 or not np.isfinite(high):
        return 1.0
    error = (high - mean) / float(stdtrit(n - 1, 0.975))
    return float(mean <= negligible) if error <= 1e-15 * sqrt(n) else float(stdtr(n - 1, (negligible - mean) / error))

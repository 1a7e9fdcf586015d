"""Find the units through which a label reaches an agent's actions.

A decoder's directions are differences of means. Where a label works as a gate ("this landmark's position counts while
it is the goal"), the means hardly differ and random directions through the same units do as much, so `usage` shows no
effect. Unit by unit the two parts of the path can still be tested: the label moves the unit, and the unit moves the
actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pandas as pd

from marlnb.analysis.interventions.intervene import MAX_ENVS
from marlnb.analysis.interventions.usage import (
    NEGLIGIBLE,
    ActionSensitivity,
    acting_group,
    baseline_warnings,
    play_episodes,
)
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.analysis.results import ALPHA, MIN_EPISODES_FOR_T_TESTS, Result, few_episodes_warning
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.models.hooks.directions import Erase
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which


@dataclass(frozen=True)
class Mediation(Result):
    """The tuned units of one agent at a site, and how much its actions depend on each.

    Attributes:
        label: what the units are tuned to.
        site: the units' site.
        agent: the agent's name.
        units: of the effects.
        negligible: an effect that does not count.
        unit: `[tuned unit]`, the most strongly tuned first.
        p_tuned: `[tuned unit]`, p-values of the tuning, as in `Tuning`.
        effect: `[tuned unit]`, how far the action distributions move on the same states when the unit is held at its
            mean.
        low: `[tuned unit]`, lower end of the effect's 95% t interval over episodes.
        high: `[tuned unit]`, upper end of that interval.
        p_effect: `[tuned unit]`, one-sided, that the effect is at most `negligible`; Holm over the tuned units.
        warnings: reasons not to trust the result.
    """

    label: str
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
        """`[tuned unit]`, `max(p_tuned, p_effect)`: that a part of the path is missing (joint significance)."""
        return np.maximum(self.p_tuned, self.p_effect)

    @property
    def mediators(self) -> np.ndarray:
        """Units through which the label reaches the actions."""
        return self.unit[self.p_value <= ALPHA]

    def table(self) -> pd.DataFrame:
        """One row for each tuned unit."""
        names = ("unit", "p_tuned", "effect", "low", "high", "p_effect", "p_value")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        mediators = ", ".join(map(str, self.mediators.tolist())) or "none"
        return (
            f"Mediation({self.label} at {self.site}, {self.agent}: {len(self.unit)} units tuned, "
            f"mediators {mediators}{self.remarks})"
        )


def mediation(
    policy_source: PolicySourceLike,
    tuned: Tuning,
    *,
    episodes: int = 100,
    seed: int = 1000,
    negligible: float = NEGLIGIBLE,
    checkpoint: Which = "last",
    n_envs: int | None = None,
    explore: bool = False,
) -> Mediation:
    """Tests on which of the units that are tuned to a label the agent's actions depend.

    The second part of the path is an intervention: each tuned unit is held at its mean by itself. The first part is
    what `tuning` observed, so a label that only correlates with what sets the unit is named as well. A label that is
    spread over many units, so that holding one changes little, is not found: use `usage` for that.

    Args:
        policy_source: a run, its folder, or other agents.
        tuned: the result of `tuning`.
        episodes: how many to play.
        negligible: an effect that does not count.
        n_envs: environments stepped at once.
        explore: sample actions; False takes the most likely ones.
    Raises:
        AnalysisError: units of a critic, which chooses no actions.
    Source: MacKinnon et al. 2002, A Comparison of Methods to Test Mediation, the test of joint significance.
    """
    policy_source = as_policy_source(policy_source)
    group = acting_group(policy_source, tuned.agent, tuned.site)
    policies = policy_source.policies(policy_source.origin(checkpoint).iteration)
    n_envs = min(episodes, n_envs or min(policy_source.n_envs, MAX_ENVS))
    with policy_source.build_env(n_envs) as env:
        check_fit(policy_source.spec, env.spec)
        baseline = play_episodes(env, policies, (), episodes=episodes, n_envs=n_envs, seed=seed, explore=explore)
    sensitivity = ActionSensitivity(policies, group.name, group.agents.index(tuned.agent), baseline)
    tests = [
        paired_test(sensitivity.effect([Erase(tuned.site, (direction,), agents=(tuned.agent,))]))
        for direction in tuned.directions()
    ]
    p = np.array([_p_above(test.mean, test.high, test.n, negligible) for test in tests])
    warnings = (
        *tuned.warnings,
        *baseline_warnings(baseline, greedy=not explore),
        *few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS),
    )
    return Mediation(
        label=tuned.label,
        site=tuned.site,
        agent=tuned.agent,
        units=sensitivity.units,
        negligible=negligible,
        unit=tuned.tuned,
        p_tuned=tuned.p_value[tuned.tuned],
        effect=np.array([test.mean for test in tests]),
        low=np.array([max(test.low, 0.0) for test in tests]),
        high=np.array([test.high for test in tests]),
        p_effect=holm(p),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _p_above(mean: float, high: float, n: int, negligible: float) -> float:
    """One-sided p-value that a mean is at most `negligible`, from the upper end of its 95% t interval."""
    from scipy.special import stdtr, stdtrit  # scipy.stats takes seconds to import

    if n < 2 or not np.isfinite(high):
        return 1.0
    error = (high - mean) / float(stdtrit(n - 1, 0.975))
    return float(mean <= negligible) if error <= 1e-15 * sqrt(n) else float(stdtr(n - 1, (negligible - mean) / error))

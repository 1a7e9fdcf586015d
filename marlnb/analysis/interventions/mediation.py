"""Find the units through which a label reaches an agent's actions.

A decoder's directions are differences of means. Where a label works as a gate ("this landmark's position counts while
it is the goal"), the means hardly differ and random directions through the same units do as much, so `usage` shows no
effect. Unit by unit the two parts of the path can still be tested: the label moves the unit, and the unit moves the
actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import sqrt

import numpy as np
import pandas as pd

from marlnb.analysis.interventions.action_sensitivity import (
    NEGLIGIBLE,
    ActionSensitivity,
    acting_group,
    baseline_warnings,
    origin_to_play,
    other_weights_warning,
    play_episodes,
)
from marlnb.analysis.interventions.intervene import MAX_INTERVENTION_ENVS
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.representations.tuning_result import Tuning
from marlnb.analysis.results import ALPHA, MIN_EPISODES_FOR_T_TESTS, Result, few_episodes_warning
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.paired_test import PairedDifference, paired_test
from marlnb.envs.workers.closing import closing_pools
from marlnb.models.hooks.directions import Erase
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.evaluation import choose_n_envs
from marlnb.training.policies.policy_source import PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which

MAX_PAIRED = 8
"""Of the units that do not mediate alone, so many (the most strongly tuned) are tested in pairs."""


@dataclass(frozen=True, repr=False)
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
        pair: `[pair, 2]`, units that do not mediate alone and were held at their means two at a time, since of two
            units that carry the same, holding one changes nothing.
        pair_effect: `[pair]`, effect of holding both.
        p_pair: `[pair]`, p-value of the pair's path, as `p_value`; Holm over the pairs.
        rest_effect: effect of holding all tuned units that do not mediate alone; None where there is none.
        rest_low: lower end of its 95% t interval.
        rest_high: upper end of that interval.
        n_episodes: how many were played.
        checkpoint: iteration of the weights that were tested.
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
    pair: np.ndarray
    pair_effect: np.ndarray
    p_pair: np.ndarray
    rest_effect: float | None
    rest_low: float | None
    rest_high: float | None
    n_episodes: int
    checkpoint: int
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

    @property
    def redundant_pairs(self) -> list[tuple[int, int]]:
        """Pairs of units through which the label reaches the actions, although neither does by itself."""
        return [(int(a), int(b)) for (a, b), p in zip(self.pair, self.p_pair) if p <= ALPHA]

    @property
    def verdict(self) -> str:
        n, mediators = len(self.unit), self.mediators.tolist()
        where = f"{self.site} of {self.agent}"
        if n == 0:
            return f"No unit of {where} is tuned to {self.label}, so none was tested; {self.n_episodes} episodes."
        parts = [f"no single one of the {n} tuned units is shown to carry {self.label} to the actions at {where}"]
        if mediators:
            k = int(np.argmax(np.where(self.p_value <= ALPHA, self.effect, -np.inf)))
            strongest = f"{self.effect[k]:.2f} [{self.low[k]:.2f}, {self.high[k]:.2f}] ({self.units})"
            parts = [
                f"{len(mediators)} of the {n} units tuned to {self.label} at {where} each carry it to the actions "
                f"(held at its mean, unit {self.unit[k]} changes them by {strongest}, p = {self.p_value[k]:.2g})"
            ]
        if self.redundant_pairs:
            names = ", ".join(f"{a} and {b}" for a, b in self.redundant_pairs[:3])
            parts.append(f"{len(self.redundant_pairs)} pairs do only together ({names})")
        elif len(self.pair):
            parts.append(f"no pair of {len(np.unique(self.pair))} others does so together")
        if self.rest_effect is not None:
            rest = f"{self.rest_effect:.2f} [{self.rest_low:.2f}, {self.rest_high:.2f}]"
            parts.append(f"all {n - len(mediators)} other tuned units held together change the actions by {rest}")
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}; {self.n_episodes} episodes."

    def _repr_table(self) -> pd.DataFrame | None:
        if not len(self.unit):
            return None
        columns = ["unit", "effect", "low", "high", "p_tuned", "p_value"]
        return self.table()[columns].sort_values("effect", ascending=False, ignore_index=True)


@closing_pools()
def mediation(
    policy_source: PolicySourceLike,
    tuned: Tuning,
    *,
    episodes: int = 100,
    seed: int = 1000,
    negligible: float = NEGLIGIBLE,
    checkpoint: Which | None = None,
    n_envs: int | None = None,
    explore: bool = False,
    progress: bool = True,
) -> Mediation:
    """Tests on which of the units that are tuned to a label the agent's actions depend.

    The second part of the path is an intervention: each tuned unit is held at its mean by itself. The first part is
    what `tuning` observed, so a label that only correlates with what sets the unit is named as well. Holding one unit
    shows nothing where a second one carries the same, or where a label is spread over many units. Therefore the units
    that do not mediate alone are also held two at a time (the 8 most strongly tuned) and all together.

    Args:
        policy_source: a run, its folder, or other agents.
        tuned: the result of `tuning`.
        episodes: how many to play.
        negligible: an effect that does not count.
        checkpoint: whose weights are tested; None: those whose units are `tuned`.
        n_envs: environments stepped at once.
        explore: sample actions; False takes the most likely ones.
        progress: show how many edits were measured, if it takes more than two seconds.
    Raises:
        AnalysisError: units of a critic, which chooses no actions.
    Source: MacKinnon et al. 2002, A Comparison of Methods to Test Mediation, the test of joint significance.
    """
    policy_source = as_policy_source(policy_source)
    group = acting_group(policy_source, tuned.agent, tuned.site)
    origin = origin_to_play(policy_source, checkpoint, tuned.checkpoint)
    policies = policy_source.policies(origin.iteration)
    n_envs = choose_n_envs(policy_source, episodes, n_envs, MAX_INTERVENTION_ENVS)
    with policy_source.build_env(n_envs) as env:
        check_fit(policy_source.spec, env.spec)
        baseline = play_episodes(env, policies, (), episodes=episodes, n_envs=n_envs, seed=seed, explore=explore)
    with AnalysisProgress(f"mediation by {tuned.agent}", "edits", shown=progress) as shown:
        index = group.agents.index(tuned.agent)
        sensitivity = ActionSensitivity(policies, group.name, index, baseline, progress=shown)
        held = partial(_effects_of_holding, sensitivity, tuned)
        tests = held([[k] for k in range(len(tuned.tuned))])
        p_tuned, p_effect = tuned.p_value[tuned.tuned], _corrected(tests, negligible)
        others = np.flatnonzero(np.maximum(p_tuned, p_effect) > ALPHA)
        pairs = list(combinations(others[:MAX_PAIRED].tolist(), 2))
        pair_tests = held(pairs)
        p_pair = _corrected(pair_tests, negligible)
        (rest,) = held([others.tolist()]) if len(others) > 1 else (None,)
    warnings = (
        *other_weights_warning("the tuning", tuned.checkpoint, origin),
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
        p_tuned=p_tuned,
        effect=np.array([test.mean for test in tests]),
        low=np.array([max(test.low, 0.0) for test in tests]),
        high=np.array([test.high for test in tests]),
        p_effect=p_effect,
        pair=tuned.tuned[np.array(pairs, dtype=np.int64).reshape(-1, 2)],
        pair_effect=np.array([test.mean for test in pair_tests]),
        p_pair=np.array([max(p, *p_tuned[list(pair)]) for p, pair in zip(p_pair, pairs)]),
        rest_effect=None if rest is None else rest.mean,
        rest_low=None if rest is None else max(rest.low, 0.0),
        rest_high=None if rest is None else rest.high,
        n_episodes=episodes,
        checkpoint=origin.iteration,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _effects_of_holding(
    sensitivity: ActionSensitivity, tuned: Tuning, sets: Iterable[Sequence[int]]
) -> list[PairedDifference]:
    """How far actions move when the tuned units of each set are held at their means together; sets: of positions in
    `tuned.tuned`."""
    directions = tuned.directions()
    chosen = [tuple(directions[k] for k in numbers) for numbers in sets]
    edits = [Erase(tuned.site, together, agents=(tuned.agent,)) for together in chosen]
    return [paired_test(effect) for effect in sensitivity.effects(edits)]


def _corrected(tests: Sequence[PairedDifference], negligible: float) -> np.ndarray:
    """p-values `[test]` that effects are at most `negligible`, corrected for their number (Holm)."""
    return holm(np.array([_p_above(test.mean, test.high, test.n, negligible) for test in tests]))


def _p_above(mean: float, high: float, n: int, negligible: float) -> float:
    """One-sided p-value that a mean is at most `negligible`, from the upper end of its 95% t interval."""
    from scipy.special import stdtr, stdtrit  # scipy.stats takes seconds to import

    if n < 2 or not np.isfinite(high):
        return 1.0
    error = (high - mean) / float(stdtrit(n - 1, 0.975))
    return float(mean <= negligible) if error <= 1e-15 * sqrt(n) else float(stdtr(n - 1, (negligible - mean) / error))

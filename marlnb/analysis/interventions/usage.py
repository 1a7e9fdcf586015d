"""Test whether an agent uses a decoded direction: erase it, steer along it, and measure the change in its actions.

A decoder shows that a concept can be read from activations, not that the agent reads it. Amnesic probing removes the
direction and compares the behaviour (Elazar et al. 2021, arXiv:2006.00995); the random directions are its control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.duplicate_episodes import duplicate_warnings, episode_hashes
from marlnb.analysis.data.trajectories import Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.intervene import MAX_ENVS
from marlnb.analysis.interventions.outcomes import mean_over_time
from marlnb.analysis.interventions.usage_result import Conclusion, Usage, UsageTest
from marlnb.analysis.results import ALPHA, MIN_EPISODES_FOR_T_TESTS, few_episodes_warning
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.analysis.stats.random_directions import MAX_VARIANCE_MISMATCH, matched_directions, random_directions
from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError, ConfigError
from marlnb.models.hooks.directions import Direction, Erase, Steer
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import PolicySource, PolicySourceLike, as_policy_source
from marlnb.training.runs.run_folder import Which

MIN_RANDOM_DIRECTIONS = 39
"""Fewer cannot give a p-value of 0.025, which Holm's correction over the two edits needs."""
NEGLIGIBLE = 0.02
Distance = Callable[[ActionDistribution, Tensor, Tensor], Tensor]


class DirectionSource(Protocol):
    """A decoding: the directions of a label, and how well it was read."""

    def directions(self, agent: str | None = None) -> tuple[Direction, ...]: ...
    def of(self, agent: str | None = None) -> Any: ...


def usage(
    policy_source: PolicySourceLike,
    directions: Direction | Sequence[Direction] | DirectionSource,
    *,
    agent: str | None = None,
    episodes: int = 100,
    seed: int = 1000,
    strength: float = 2.0,
    n_random_directions: int = MIN_RANDOM_DIRECTIONS,
    negligible: float = NEGLIGIBLE,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    n_envs: int | None = None,
    explore: bool = False,
) -> Usage:
    """Tests whether an agent uses what a direction stands for, by erasing it and by steering along it.

    The effect is how far the agent's action distributions move on the same states, those of episodes played without
    edits: total variation, `TV(p, q) = 1/2 sum_a |p(a) - q(a)|`, or for continuous actions KL in nats. It is compared
    with the effects of random directions of the same length, orthogonal to the tested ones, and of random directions
    along which the activations vary as much.

    Args:
        policy_source: a run, its folder, or other agents.
        directions: one Direction, several of one concept, or a decoding, of which all directions are taken.
        agent: whose, if a decoding has several; None: the directions' own agent.
        episodes: how many to play.
        strength: of the steering, in standard deviations along the direction, forwards and backwards.
        n_random_directions: the smallest possible p-value is 1 / (1 + n_random_directions).
        negligible: an effect that does not count as use.
        n_envs: environments stepped at once.
        explore: sample actions; False takes the most likely ones.
    Raises:
        AnalysisError: directions of several sites or agents, or of a critic, which chooses no actions.
    """
    directions, decodable = _resolve_directions(directions, agent)
    site, agent = directions[0].site, directions[0].agent
    if n_random_directions < 1 or episodes < 2:
        raise ConfigError(
            f"n_random_directions must be 1 or more and episodes 2 or more; got {n_random_directions} and {episodes}"
        )
    policy_source = as_policy_source(policy_source)
    group = acting_group(policy_source, agent, site)
    origin = policy_source.origin(checkpoint)
    policies = policy_source.policies(origin.iteration)
    n_envs = min(episodes, n_envs or min(policy_source.n_envs, MAX_ENVS))
    with policy_source.build_env(n_envs, env=env) as built:
        check_fit(policy_source.spec, built.spec)
        play = partial(play_episodes, built, policies, episodes=episodes, n_envs=n_envs, seed=seed, explore=explore)
        baseline = play((), sites=[site])
        sensitivity = ActionSensitivity(policies, group.name, group.agents.index(agent), baseline)
        activations = sensitivity.activations(site)
        rng = np.random.default_rng(derive_seed(seed, "usage"))
        vectors = np.array([direction.vector for direction in directions])
        matched, mismatch = matched_directions(vectors, np.cov(activations.T), max(n_random_directions // 2, 1), rng)
        random = random_directions(vectors, n_random_directions, rng)
        if mismatch > MAX_VARIANCE_MISMATCH:
            matched = matched[:0]
        controls = [[_with_vectors(directions, vectors, activations) for vectors in sets] for sets in (random, matched)]
        tests = tuple(_test(kind, sensitivity, directions, controls, strength, play) for kind in ("erase", "steer"))
    return Usage(
        concept=_concept(directions),
        site=site,
        agent=agent,
        n_directions=len(directions),
        n_random_directions=n_random_directions,
        episodes=episodes,
        strength=strength,
        units=sensitivity.units,
        negligible=negligible,
        decodable=decodable,
        conclusion=_conclusion(tests, decodable, negligible),
        tests=tests,
        settings={"seed": seed, "checkpoint": origin.iteration, "sha256": origin.sha256, "n_envs": n_envs},
        warnings=(
            *baseline_warnings(baseline, greedy=not explore),
            *_warnings(tests, episodes, n_random_directions, activations, directions),
        ),
    )


def acting_group(policy_source: PolicySource, agent: str, site: str) -> GroupSpec:
    """The group of an agent whose actions depend on a site.

    Raises:
        AnalysisError: no such agent, or a site of the critic.
    """
    group = next((group for group in policy_source.spec.groups if agent in group.agents), None)
    if group is None or "/critic/" in site:
        raise AnalysisError(f"{site!r} of {agent!r} chooses no actions; the agents are {policy_source.spec.agents}")
    return group


def play_episodes(
    env: VectorEnv,
    policies: Mapping[str, Policy],
    edits: Sequence[Edit],
    *,
    episodes: int,
    n_envs: int,
    seed: int,
    explore: bool,
    sites: Sequence[str] = (),
) -> list[Trajectories]:
    """Episodes 0 to `episodes` - 1, `n_envs` at a time."""
    return [
        roll_out(
            env, policies, edits, seed=seed, first=first, explore=explore, sites=sites, labels=False,
            episodes=min(n_envs, episodes - first),
        )
        for first in range(0, episodes, n_envs)
    ]  # fmt: skip


def baseline_warnings(baseline: Sequence[Trajectories], *, greedy: bool) -> tuple[str, ...]:
    """A warning if many of the episodes are duplicates."""
    return duplicate_warnings([hash for track in baseline for hash in episode_hashes(track)], greedy=greedy)


class ActionSensitivity:
    """How far one agent's action distributions move under edits, on the states of episodes without edits.

    Attributes:
        units: of the effects: total variation, KL (nats), or action for actions without a density.
    """

    def __init__(
        self, policies: Mapping[str, Policy], group: str, agent_index: int, baseline: Sequence[Trajectories]
    ) -> None:
        self.policies, self.group, self.agent_index, self.baseline = policies, group, agent_index, baseline
        distribution = policies[group].distribution
        if distribution is None:
            raise AnalysisError(f"{type(policies[group]).__name__} has no action distribution to compare")
        self.distribution = distribution
        logits = baseline[0].logits[group][:1]
        if total_variation(distribution, logits, logits) is not None:
            self.units, self._distance = "total variation", cast(Distance, total_variation)
        elif kl_divergence(distribution, logits, logits) is not None:
            self.units, self._distance = "KL (nats)", cast(Distance, kl_divergence)
        else:
            self.units, self._distance = "action", _mode_distance

    def activations(self, site: str) -> np.ndarray:
        """`[step, unit]` float64, of the steps at which the agent acts."""
        of_agents = next(s for s in self.policies[self.group].sites() if s.name == site).agents
        column = 0 if of_agents is not None else self.agent_index
        acting = (track.acting[self.group][:, :, self.agent_index] for track in self.baseline)
        rows = [track.activations[site][:, :, column][acts] for track, acts in zip(self.baseline, acting)]
        return torch.cat(rows).double().cpu().numpy()

    def effect(self, edits: Sequence[Edit]) -> np.ndarray:
        """Mean distance between the action distributions without and with the edits, `[episode]`."""
        effects = []
        for track in self.baseline:
            outputs = evaluate_on(self.policies, track, edits, values=False, groups=[self.group])
            edited_logits = outputs.logits[self.group]
            assert edited_logits is not None
            distance = self._distance(self.distribution, track.logits[self.group], edited_logits)
            effects.append(mean_over_time(distance, track.acting[self.group])[:, self.agent_index])
        return np.concatenate(effects)

    def returns(self, tracks: Sequence[Trajectories]) -> np.ndarray:
        """The agent's returns, `[episode]`."""
        return np.concatenate([track.table.returns[self.group][:, self.agent_index] for track in tracks])


def _test(
    kind: str,
    sensitivity: ActionSensitivity,
    directions: Sequence[Direction],
    controls: Sequence[Sequence[Sequence[Direction]]],
    strength: float,
    play: Callable[[Sequence[Edit]], list[Trajectories]],
) -> UsageTest:
    def effect_of(tested: Sequence[Direction]) -> np.ndarray:
        effects = [sensitivity.effect(edits) for edits in _edits(kind, tested, strength)]
        return np.asarray(np.mean(effects, axis=0))

    effect = paired_test(effect_of(directions))
    random, matched = (np.array([np.nanmean(effect_of(control)) for control in sets]) for sets in controls)
    forwards = play(_edits(kind, directions, strength)[0])
    returns = paired_test(sensitivity.returns(forwards) - sensitivity.returns(sensitivity.baseline))
    return UsageTest(
        edit="erase" if kind == "erase" else "steer",
        effect=effect.mean,
        low=max(effect.low, 0.0),
        high=effect.high,
        random_mean=float(random.mean()),
        random_high=float(np.quantile(random, 0.95)),
        p_value=_share_at_least(random, effect.mean),
        matched_mean=float(matched.mean()) if len(matched) else None,
        p_matched=_share_at_least(matched, effect.mean) if len(matched) else None,
        return_change=returns.mean,
        return_low=returns.low,
        return_high=returns.high,
        random=tuple(random.tolist()),
    )


def _mode_distance(distribution: ActionDistribution, before: Tensor, after: Tensor) -> Tensor:
    """For actions without a density: the mean distance of their components."""
    return (distribution.mode(before).action - distribution.mode(after).action).abs().mean(-1)


def _share_at_least(random: np.ndarray, effect: float) -> float:
    return float((1 + (random >= effect).sum()) / (1 + len(random)))


def _edits(kind: str, directions: Sequence[Direction], strength: float) -> list[list[Edit]]:
    """The edits to be tried, each by itself; the first one steers forwards along the first direction."""
    site, agents = directions[0].site, (directions[0].agent,)
    if kind == "erase":
        return [[Erase(site, tuple(directions), agents=agents)]]
    return [[Steer(site, direction, sign * strength, agents=agents)] for direction in directions for sign in (1, -1)]


def _with_vectors(directions: Sequence[Direction], vectors: np.ndarray, activations: np.ndarray) -> list[Direction]:
    """The directions with other vectors: steered as far as they are, erased to the mean along the new vector."""
    means = activations.mean(axis=0)
    return [
        replace(direction, vector=tuple(vector), mean=float(vector @ means), concept="random")
        for direction, vector in zip(directions, vectors)
    ]


def _concept(directions: Sequence[Direction]) -> str:
    """The directions' concept; for several classes of a label ("goal = red", ...) the label's name."""
    names = {
        direction.concept if len(directions) == 1 else direction.concept.split(" = ")[0] for direction in directions
    }
    return ", ".join(sorted(names)) or "a direction"


def _resolve_directions(
    source: Direction | Sequence[Direction] | DirectionSource, agent: str | None
) -> tuple[tuple[Direction, ...], bool | None]:
    """The directions, and whether the decoding that they come from read the label better than chance."""
    decodable: bool | None = None
    if isinstance(source, Direction | Sequence):
        directions = (source,) if isinstance(source, Direction) else tuple(source)
    else:
        score = source.of(agent)
        directions, decodable = source.directions(agent), bool(score.p_value <= ALPHA and score.low > score.chance)
    sites = {(direction.site, direction.agent) for direction in directions}
    if len(sites) != 1:
        raise AnalysisError(f"directions must be of one agent at one site; got {sorted(sites)}")
    if agent is not None and directions[0].agent != agent:
        directions = tuple(replace(direction, agent=agent) for direction in directions)
    return directions, decodable


def _conclusion(tests: Sequence[UsageTest], decodable: bool | None, negligible: float) -> Conclusion:
    corrected = holm(np.array([test.p_value for test in tests]))
    if any(p <= ALPHA and test.low > negligible for p, test in zip(corrected, tests)):
        return "used"
    small = all(test.high <= negligible for test in tests)
    return "decodable but not used" if small and decodable else "not shown to be used"


def _warnings(
    tests: Sequence[UsageTest],
    episodes: int,
    n_random_directions: int,
    activations: np.ndarray,
    directions: Sequence[Direction],
) -> Iterator[str]:
    yield from few_episodes_warning(episodes, MIN_EPISODES_FOR_T_TESTS)
    if n_random_directions < MIN_RANDOM_DIRECTIONS:
        smallest = 1 / (1 + n_random_directions)
        yield f"{n_random_directions} random directions cannot give a p-value below {smallest:.2g}"
    deviation = min(float((activations @ np.array(direction.vector)).std()) for direction in directions)
    if deviation < 1e-6:
        yield "the activations do not vary along the direction in these episodes"
    if all(test.effect == 0 for test in tests):
        yield "no edit changed any action distribution: check that the site leads to the agent's actions"

"""usage: takes away what a probe found, and adds to it, and sees whether the agent chooses otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.duplicate_episodes import episode_hashes, duplicate_warnings
from marlnb.analysis.data.trajectories import Trajectories, evaluate_on, roll_out
from marlnb.analysis.interventions.intervene import FEW_EPISODES, MOST_COPIES, PolicySourceLike
from marlnb.analysis.interventions.outcomes import mean_over_time
from marlnb.analysis.interventions.usage_result import Usage, UsageTest, Verdict
from marlnb.analysis.stats.corrections import holm
from marlnb.analysis.stats.divergence import kl_divergence, total_variation
from marlnb.analysis.stats.paired_test import paired_test
from marlnb.analysis.stats.random_directions import CLOSE, matched_directions, random_directions
from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import AnalysisError, ConfigError
from marlnb.models.hooks.directions import Direction
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits_directions import Erase, Steer
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.compatibility import check_fit
from marlnb.training.policies.policy_source import as_policy_source
from marlnb.training.runs.run import Which

FEW_RANDOM = 39
NEGLIGIBLE = 0.02
LEVEL = 0.05
Distance = Callable[[ActionDistribution, Tensor, Tensor], Tensor]


class Found(Protocol):
    """A decoding: what directions a label takes up, and how well it was read."""

    def directions(self, agent: str | None = None) -> tuple[Direction, ...]: ...
    def of(self, agent: str | None = None) -> Any: ...


def usage(
    subject: PolicySourceLike,
    found: Direction | Sequence[Direction] | Found,
    *,
    agent: str | None = None,
    episodes: int = 100,
    seed: int = 1000,
    strength: float = 2.0,
    n_random: int = FEW_RANDOM,
    negligible: float = NEGLIGIBLE,
    checkpoint: Which = "last",
    env: EnvConfig | None = None,
    n_envs: int | None = None,
    explore: bool = False,
) -> Usage:
    """Whether an agent uses what lies along a direction, by erasing it and by steering along it.

    The effect is how far the agent's action distributions move at the same moments: those of episodes played without
    edits (total variation; for continuous actions KL, in nats). Each is compared with that of random directions,
    orthogonal to what was found, of the same length; and of those along which as much varies.

    Args:
        found: a Direction, several that are one concept's, or a decoding, of which all directions are taken.
        agent: whose, where a decoding has several; None: the directions' own.
        strength: of the steering, in standard deviations along the direction, each way.
        n_random: random directions; the smallest p-value is 1 / (1 + n_random).
        negligible: an effect that one would not call use.
    Raises:
        AnalysisError: the directions are of several sites or agents, or of a critic, which chooses nothing.
    """
    directions, decodable = _directions(found, agent)
    site, who = directions[0].site, directions[0].agent
    if n_random < 1 or episodes < 2:
        raise ConfigError(f"n_random is 1 or more, episodes 2 or more; got {n_random}, {episodes}")
    subject = as_policy_source(subject)
    group = next((g for g in subject.spec.groups if who in g.agents), None)
    if group is None or "/critic/" in site:
        raise AnalysisError(f"{site!r} of {who!r} chooses no actions; the agents are {subject.spec.agents}")
    origin = subject.origin(checkpoint)
    policies = subject.policies(origin.iteration)
    copies = min(episodes, n_envs or min(subject.n_envs, MOST_COPIES))
    with subject.build_env(copies, env=env) as built:
        check_fit(subject.spec, built.spec)
        batches = [(first, min(copies, episodes - first)) for first in range(0, episodes, copies)]
        plain = [
            roll_out(
                built, policies, (), seed=seed, first=first, explore=explore, sites=[site], labels=False, episodes=n
            )
            for first, n in batches
        ]
        trial = Trial(policies, group.name, group.agents.index(who), who, plain)
        activations = trial.activations(site)
        rng = np.random.default_rng(derive_seed(seed, "usage"))
        target = np.array([each.vector for each in directions])
        matched, mismatch = matched_directions(target, np.cov(activations.T), max(n_random // 2, 1), rng)
        even = random_directions(target, n_random, rng)
        if mismatch > CLOSE:
            matched = matched[:0]
        controls = [[_like(directions, vectors, activations) for vectors in sets] for sets in (even, matched)]
        tests = tuple(
            _test(kind, trial, directions, controls, strength, built, seed, explore) for kind in ("erase", "steer")
        )
    same = duplicate_warnings([episode for track in plain for episode in episode_hashes(track)], greedy=not explore)
    warnings = (*same, *_warnings(tests, episodes, n_random, activations, directions))
    return Usage(
        concept=_concept(directions),
        site=site,
        agent=who,
        n_directions=len(directions),
        n_random=n_random,
        episodes=episodes,
        strength=strength,
        units=trial.units,
        negligible=negligible,
        decodable=decodable,
        verdict=_verdict(tests, decodable, negligible),
        tests=tests,
        settings={"seed": seed, "checkpoint": origin.iteration, "sha256": origin.sha256, "n_envs": copies},
        warnings=warnings,
    )


class Trial:
    """Episodes without edits, and how far one agent's choices at them move under edits."""

    def __init__(
        self, policies: Mapping[str, Policy], group: str, index: int, agent: str, plain: Sequence[Trajectories]
    ) -> None:
        self.policies, self.group, self.index, self.agent, self.plain = policies, group, index, agent, plain
        distribution = policies[group].distribution
        if distribution is None:
            raise AnalysisError(f"{type(policies[group]).__name__} tells no action distribution to compare")
        self.distribution = distribution
        some = plain[0].logits[group][:1]
        if total_variation(distribution, some, some) is not None:
            self.units, self._distance = "total variation", cast(Distance, total_variation)
        elif kl_divergence(distribution, some, some) is not None:
            self.units, self._distance = "KL (nats)", cast(Distance, kl_divergence)
        else:
            self.units, self._distance = "action", _apart

    def activations(self, site: str) -> np.ndarray:
        """`[step, unit]` float64, of the steps at which the agent acts."""
        policy = self.policies[self.group]
        place = next(s for s in policy.sites() if s.name == site)
        column = 0 if place.agents is not None else self.index
        rows = [
            track.activations[site][:, :, column][track.acting[self.group][:, :, self.index]] for track in self.plain
        ]
        return torch.cat(rows).double().cpu().numpy()

    def effect(self, edits: Sequence[Edit]) -> np.ndarray:
        """`[episode]`."""
        found = []
        for track in self.plain:
            said = evaluate_on(self.policies, track, edits, values=False, groups=[self.group]).logits[self.group]
            assert said is not None
            moved = self._distance(self.distribution, track.logits[self.group], said)
            found.append(mean_over_time(moved, track.acting[self.group])[:, self.index])
        return np.concatenate(found)

    def returns(self, tracks: Sequence[Trajectories]) -> np.ndarray:
        return np.concatenate([track.table.returns[self.group][:, self.index] for track in tracks])


def _test(
    kind: str,
    trial: Trial,
    directions: Sequence[Direction],
    controls: Sequence[Sequence[Sequence[Direction]]],
    strength: float,
    env: VectorEnv,
    seed: int,
    explore: bool,
) -> UsageTest:
    def effect(along: Sequence[Direction]) -> np.ndarray:
        ways = [trial.effect(edits) for edits in _edits(kind, along, strength)]
        return np.asarray(np.mean(ways, axis=0))

    own = paired_test(effect(directions))
    random, matched = (np.array([np.nanmean(effect(control)) for control in sets]) for sets in controls)
    changed = []
    for track in trial.plain:
        edits, n = _edits(kind, directions, strength)[0], len(track.table)
        changed.append(
            roll_out(
                env, trial.policies, edits, seed=seed, first=track.first, explore=explore, labels=False, episodes=n
            )
        )
    returns = paired_test(trial.returns(changed) - trial.returns(trial.plain))
    return UsageTest(
        edit="erase" if kind == "erase" else "steer",
        effect=own.mean,
        low=max(own.low, 0.0),
        high=own.high,
        random_mean=float(random.mean()),
        random_high=float(np.quantile(random, 0.95)),
        p_value=_share_at_least(random, own.mean),
        matched_mean=float(matched.mean()) if len(matched) else None,
        p_matched=_share_at_least(matched, own.mean) if len(matched) else None,
        return_change=returns.mean,
        return_low=returns.low,
        return_high=returns.high,
        random=tuple(random.tolist()),
    )


def _apart(distribution: ActionDistribution, before: Tensor, after: Tensor) -> Tensor:
    """Of actions without a density: the mean distance of their components."""
    return (distribution.mode(before).action - distribution.mode(after).action).abs().mean(-1)


def _share_at_least(random: np.ndarray, effect: float) -> float:
    return float((1 + (random >= effect).sum()) / (1 + len(random)))


def _edits(kind: str, along: Sequence[Direction], strength: float) -> list[list[Edit]]:
    """The edits to be tried, each by itself; the first goes forwards along the first direction."""
    agents = (along[0].agent,)
    if kind == "erase":
        return [[Erase(along[0].site, tuple(along), agents=agents)]]
    return [[Steer(each.site, each, sign * strength, agents=agents)] for each in along for sign in (1, -1)]


def _like(directions: Sequence[Direction], vectors: np.ndarray, activations: np.ndarray) -> list[Direction]:
    """Random directions in the place of those that were found: steered as far, erased to their own mean."""
    means = activations.mean(axis=0)
    return [
        replace(each, vector=tuple(vector), mean=float(vector @ means), concept="random")
        for each, vector in zip(directions, vectors)
    ]


def _concept(directions: Sequence[Direction]) -> str:
    """What they are of: of a label's classes, "goal = red" and others, the label."""
    names = {each.concept if len(directions) == 1 else each.concept.split(" = ")[0] for each in directions}
    return ", ".join(sorted(names)) or "a direction"


def _directions(
    found: Direction | Sequence[Direction] | Found, agent: str | None
) -> tuple[tuple[Direction, ...], bool | None]:
    decodable: bool | None = None
    if isinstance(found, Direction):
        directions: tuple[Direction, ...] = (found,)
    elif isinstance(found, Sequence):
        directions = tuple(found)
    else:
        score = found.of(agent)
        directions, decodable = found.directions(agent), bool(score.p_value <= LEVEL and score.low > score.chance)
    if not directions or len({(each.site, each.agent) for each in directions}) != 1:
        raise AnalysisError(
            f"directions of one agent at one site are asked about together; got "
            f"{sorted({(each.site, each.agent) for each in directions})}"
        )
    if agent is not None and directions[0].agent != agent:
        directions = tuple(replace(each, agent=agent) for each in directions)
    return directions, decodable


def _verdict(tests: Sequence[UsageTest], decodable: bool | None, negligible: float) -> Verdict:
    corrected = holm(np.array([test.p_value for test in tests]))
    if any(p <= LEVEL and test.low > negligible for p, test in zip(corrected, tests)):
        return "used"
    small = all(test.high <= negligible for test in tests)
    return "decodable but not used" if small and decodable else "not shown to be used"


def _warnings(
    tests: Sequence[UsageTest],
    episodes: int,
    n_random: int,
    activations: np.ndarray,
    directions: Sequence[Direction],
) -> Iterator[str]:
    if episodes < FEW_EPISODES:
        yield f"{episodes} episodes are few: intervals from fewer than {FEW_EPISODES} are rough"
    if n_random < FEW_RANDOM:
        yield f"{n_random} random directions cannot give a p-value below {1 / (1 + n_random):.2g}"
    spread = min(float((activations @ np.array(each.vector)).std()) for each in directions)
    if spread < 1e-6:
        yield "the activations do not vary along the direction in these episodes"
    if all(test.effect == 0 for test in tests):
        yield "no edit changed any action distribution: does the site lead to the agent's actions?"

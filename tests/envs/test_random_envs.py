"""Environments drawn at random against a plain loop over one copy: every number, through to the advantages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.gae import RolloutValues, advantages, rollout_values
from marlnb.algorithms.on_policy import OnPolicyLearner
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.turns import ends_of, with_turns
from marlnb.config import LearnerContext
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.specs import SEED_SPAN
from marlnb.training.collect.episode_statistics import EpisodeTracker
from marlnb.training.collect.rollout import Collector
from tests.envs.random_envs import (
    PlainStep,
    Plan,
    RandomParallel,
    RandomTurns,
    plain_advantages,
    plain_parallel,
    plain_returns,
    plain_turns,
)

N_EXAMPLES = int(os.environ.get("MARLNB_EXAMPLES", "20"))  # `make fuzz-envs` draws more, other ones each time
N_STEPS, N_ROLLOUTS = 9, 2
GAMMA, GAE_LAMBDA = 0.9, 0.8
MODEL = MLPConfig(hidden=(4,))

BOXES = st.builds(
    lambda shape, dtype: spaces.Box(-1, 1, shape, dtype),
    st.sampled_from([(1,), (3,), (2, 2), ()]),
    st.sampled_from([np.float32, np.float64]),
)
IMAGES = st.just(spaces.Box(0, 255, (2, 2, 3), np.uint8))
CHOICES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 4), start=st.integers(-2, 2)),
    st.builds(
        lambda n: spaces.MultiDiscrete(n, start=[1] * len(n)), st.lists(st.integers(1, 3), min_size=1, max_size=3)
    ),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
)
OBSERVATIONS = st.recursive(
    BOXES | CHOICES,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from(["near", "far", "kind"]), parts, min_size=1).map(spaces.Dict),
    ),
    max_leaves=4,
)
ACTIONS = CHOICES | st.builds(lambda n: spaces.Box(-2, 1, (n,), np.float32), st.integers(1, 2))


@st.composite
def plans(draw: Any, *, turns: bool) -> Plan:
    n_groups = draw(st.integers(1, 2))
    return Plan(
        observations=tuple(draw(OBSERVATIONS | IMAGES) for _ in range(n_groups)),
        actions=tuple(draw(ACTIONS) for _ in range(n_groups)),
        sizes=tuple(draw(st.integers(1, 3)) for _ in range(n_groups)),
        mask=draw(st.sampled_from(["none", "observation", "info"])),
        length=draw(st.integers(1, 12)),
        max_steps=None if turns else draw(st.none() | st.integers(1, 6)),
        comings=draw(st.sampled_from([0.0, 0.4])),
        goings=draw(st.sampled_from([0.0, 0.3])),
        number=draw(st.integers(0, 2**31)),
    )


COMMON = settings(
    max_examples=N_EXAMPLES,
    deadline=None,
    derandomize="MARLNB_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@COMMON
@given(plan=plans(turns=False), n_envs=st.integers(1, 3), seed=st.integers(0, SEED_SPAN - 1))
def test_parallel(plan: Plan, n_envs: int, seed: int) -> None:
    check(plan, n_envs, seed, turns=False)


@COMMON
@given(plan=plans(turns=True), n_envs=st.integers(1, 3), seed=st.integers(0, SEED_SPAN - 1))
def test_turns(plan: Plan, n_envs: int, seed: int) -> None:
    check(plan, n_envs, seed, turns=True)


def check(plan: Plan, n_envs: int, seed: int, *, turns: bool) -> None:
    """Plays rollouts under untrained policies, and the same actions in the plain loop."""

    def random_env() -> RandomParallel | RandomTurns:
        return RandomTurns(plan) if turns else RandomParallel(plan)

    with pettingzoo_vector_env(random_env, n_envs, workers=0, max_steps=plan.max_steps) as env:
        learners: dict[str, OnPolicyLearner] = {}
        for group in env.spec.groups:
            torch.manual_seed(0)
            learners[group.name] = IPPOConfig().build(LearnerContext(group, env.spec, MODEL, MODEL, n_envs, N_STEPS))
        collector = Collector(
            env,
            {name: learner.policy for name, learner in learners.items()},
            N_STEPS,
            generator=torch.Generator().manual_seed(0),
        )
        collector.reset(seed)
        rollouts = [collector.collect().clone() for _ in range(N_ROLLOUTS)]
        spec = env.spec
    tracker = EpisodeTracker(spec, n_envs)
    returns = [tracker.add(rollout) for rollout in rollouts]
    plain = [
        (plain_turns if turns else plain_parallel)(
            plan,
            seeds(seed, n_envs, b),
            lambda t, agent, b=b: action_of(rollouts, plan, agent, b, t),  # type: ignore[misc]
            N_STEPS * N_ROLLOUTS,
        )
        for b in range(n_envs)
    ]
    for b, steps in enumerate(plain):
        for t, step in enumerate(steps):
            compare(rollouts[t // N_STEPS], plan, b, t % N_STEPS, step, steps[t + 1] if t + 1 < len(steps) else None)
    for group in spec.groups:
        learner = learners[group.name]
        for i, agent in enumerate(group.agents):
            rows = [step.rows[agent] for steps in plain for step in steps if step.rows[agent].alive]
            values = values_of(learner, i, [seen for row in rows for seen in (row.observation, row.after)])
            for k, rollout in enumerate(rollouts):
                learns, estimate = advantages_of(learner, rollout, turns)
                parts = [steps[k * N_STEPS : (k + 1) * N_STEPS] for steps in plain]
                rows = [step.rows[agent] for part in parts for step in part]
                waits = turns and any(row.alive and not row.acting for row in rows)
                for b, part in enumerate(parts):
                    expected = plain_advantages(
                        part, agent, values, gamma=GAMMA, gae_lambda=GAE_LAMBDA, turns=turns, waits=waits
                    )
                    assert sorted(expected) == learns[b, :, i].nonzero().flatten().tolist(), (agent, b, k)
                    for t, advantage in expected.items():
                        assert float(estimate[b, t, i]) == pytest.approx(advantage, abs=2e-5), (agent, b, k, t)
    for group in spec.groups:
        agents = list(group.agents)
        expected_returns = sorted(row for steps in plain for row in plain_returns(steps, agents))
        actual = sorted(row for part in returns for row in part.returns[group.name].tolist())
        np.testing.assert_allclose(actual, expected_returns, atol=1e-6)


def seeds(seed: int, n_envs: int, env_index: int) -> Iterator[int]:
    episode = 0
    while True:
        yield (seed + episode * n_envs + env_index) % SEED_SPAN
        episode += 1


def action_of(rollouts: list[Rollout], plan: Plan, agent: str, b: int, t: int) -> np.ndarray:
    group, i = agent.split("_")
    action = rollouts[t // N_STEPS][group, "action"][b, t % N_STEPS, int(i)].numpy()
    space = plan.actions[plan.group_of(agent)]
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else action


def compare(rollout: Rollout, plan: Plan, b: int, t: int, step: PlainStep, following: PlainStep | None) -> None:
    assert bool(rollout["next", "done"][b, t]) == step.done
    for agent, row in step.rows.items():
        group, i = agent.split("_")
        now, after = rollout[group], rollout["next", group]

        def of(fields: Rollout, name: str, i: int = int(i)) -> np.ndarray:
            value: np.ndarray = fields[name][b, t, i].numpy()
            return value

        assert (bool(of(now, "alive")), bool(of(now, "acting"))) == (row.alive, row.acting), agent
        assert of(after, "reward") == np.float32(row.reward)
        assert (bool(of(after, "terminated")), bool(of(after, "truncated"))) == (row.terminated, row.truncated)
        seen = of(now, "observation")
        np.testing.assert_array_equal(seen, 0 if row.observation is None else row.observation.reshape(seen.shape))
        if row.after is not None:
            np.testing.assert_array_equal(of(after, "observation"), row.after.reshape(seen.shape))
        elif following is not None and not step.done and following.rows[agent].observation is not None:
            came = following.rows[agent].observation
            np.testing.assert_array_equal(of(after, "observation"), came.reshape(seen.shape))
        if now.get("action_mask") is not None:
            allowed = row.mask if row.mask is not None and row.acting else True
            np.testing.assert_array_equal(of(now, "action_mask"), allowed)
            if row.acting and row.mask is not None:
                assert row.mask[of(now, "action")]


def advantages_of(learner: OnPolicyLearner, rollout: Rollout, turns: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Who learns at which step, and the advantages, `[env, time, agent]`."""
    values: RolloutValues = rollout_values(learner.policy, rollout)
    if turns:
        ends = ends_of(rollout, learner.group)
        rollout = with_turns(rollout, learner.group, ends)
        values = values._replace(next_value=ends.gather(values.next_value))
    name = learner.group.name
    estimate = advantages(rollout, name, values, gamma=GAMMA, gae_lambda=GAE_LAMBDA, turn_based=turns)
    return rollout[name, "acting"], estimate


@torch.no_grad()
def values_of(learner: OnPolicyLearner, agent: int, seen: list[np.ndarray | None]) -> dict[int, float]:
    """The value of each observation, by the `id` of its array."""
    policy, group = learner.policy, learner.group
    shape, arrays = group.observation.shape, [array for array in seen if array is not None]
    if not arrays:
        return {}
    rows = torch.from_numpy(np.stack(arrays).astype(group.observation.dtype).reshape(-1, 1, *shape))
    observation = rows.expand(-1, group.n_agents, *shape)
    value = policy.value_norm.denormalise(policy.critic(policy.critic.inputs({group.name: observation})))
    return {id(array): float(number) for array, number in zip(arrays, value[:, agent])}

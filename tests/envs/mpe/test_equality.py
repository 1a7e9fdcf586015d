"""Every scenario goes the way that mpe2 goes, from the same state and under the same actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.config import ENVIRONMENTS
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from tests.envs.mpe.worlds import mpe2_of

N_ENVS = 4
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("simple", {}),
    ("simple_spread", {}),
    ("simple_spread", {"N": 5, "local_ratio": 0.2}),
    ("simple_spread", {"N": 1, "terminate_on_success": True}),
    ("simple_spread", {"num_agent_neighbors": 1, "num_landmark_neighbors": 2}),
    ("simple_spread", {"num_agent_neighbors": 4, "num_landmark_neighbors": 5}),
    ("simple_spread", {"curriculum": True}),
    ("simple_speaker_listener", {"max_cycles": 40}),
    ("simple_reference", {}),
    ("simple_reference", {"local_ratio": 0.9}),
    ("simple_tag", {}),
    ("simple_tag", {"num_good": 2, "num_adversaries": 2, "num_obstacles": 0}),
    ("simple_tag", {"num_agent_neighbors": 2, "num_landmark_neighbors": 3}),
    ("simple_tag", {"curriculum": True, "curriculum_stage": 1, "terminate_on_success": True, "max_cycles": 100}),
    ("simple_adversary", {}),
    ("simple_adversary", {"N": 4, "num_agent_neighbors": 2, "num_landmark_neighbors": 2}),
    ("simple_push", {}),
    ("simple_crypto", {}),
    ("simple_world_comm", {}),
    ("simple_world_comm", {"num_good": 3, "num_adversaries": 1, "num_obstacles": 2, "num_food": 1, "num_forests": 0}),
    ("simple_world_comm", {"num_good": 1, "num_forests": 5}),
]


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("scenario", "options"), VARIANTS, ids=lambda value: value if isinstance(value, str) else None)
def test_whole_episodes_equal_mpe2(scenario: str, options: dict[str, Any], dtype: str, continuous: bool) -> None:
    config = ENVIRONMENTS.get(f"mpe/{scenario}")(continuous_actions=continuous, dtype=dtype, **options)
    env = config.build(N_ENVS)
    env.reset(seed=11)
    generator = torch.Generator().manual_seed(1)
    raws = [mpe2_of(env, env_index) for env_index in range(N_ENVS)]
    tolerance = {"float64": 1e-6, "float32": 1e-4}[dtype]
    for _ in range(config.max_cycles):
        actions = _random_actions(env, generator)
        step = env.step(actions)
        for env_index, raw in enumerate(raws):
            _step_raw(env, raw, actions, env_index)
            _assert_equal(env, raw, env_index, tolerance)
            if step.done[env_index]:
                raws[env_index] = mpe2_of(env, env_index)


def _random_actions(env: TensorVectorEnv, generator: torch.Generator) -> dict[str, Tensor]:
    """Continuous ones reach a little over the bounds, where mpe2 clips them."""
    actions = {}
    for group in env.spec.groups:
        shape = (env.n_envs, group.n_agents, *group.action.shape)
        if group.action.kind == "continuous":
            actions[group.name] = torch.rand(shape, generator=generator) * 1.2 - 0.1
        else:
            actions[group.name] = torch.randint(group.action.n[0], shape, generator=generator)
    return actions


def _step_raw(env: TensorVectorEnv, raw: Any, actions: dict[str, Tensor], env_index: int) -> None:
    for group in env.spec.groups:
        for action in actions[group.name][env_index]:
            raw.step(action.clamp(0, 1).numpy() if group.action.kind == "continuous" else int(action))


def _assert_equal(env: TensorVectorEnv, raw: Any, env_index: int, tolerance: float) -> None:
    step = env._step
    for group in env.spec.groups:
        rows = step.groups[group.name]
        seen = rows.final_observation if step.done[env_index] else rows.observation
        for number, agent in enumerate(group.agents):
            expected = raw.scenario.observation(raw.world.agents[raw._index_map[agent]], raw.world)
            np.testing.assert_allclose(seen[env_index, number].numpy(), expected, rtol=0, atol=tolerance)
            # rewards travel as float32, whose rounding grows with their size
            np.testing.assert_allclose(
                float(rows.reward[env_index, number]), raw.rewards[agent], rtol=1e-7, atol=tolerance
            )
            assert bool(rows.terminated[env_index, number]) == raw.terminations[agent]
            assert bool(rows.truncated[env_index, number]) == raw.truncations[agent]


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS.names() if name.startswith("mpe/")])
def test_agents_and_spaces_are_those_of_mpe2(name: str, continuous: bool) -> None:
    env = ENVIRONMENTS.get(name)(continuous_actions=continuous, state=True).build(2)
    step = env.reset(seed=0)
    raw = mpe2_of(env, 1)
    assert list(env.spec.agents) == raw.possible_agents
    for group in env.spec.groups:
        for agent in group.agents:
            assert raw.observation_space(agent).shape == group.observation.shape
            space = raw.action_space(agent)
            assert (space.shape[0] if continuous else space.n) == (len(group.action.names))
            assert group.action.shape == ((space.shape[0],) if continuous else ())
    np.testing.assert_allclose(step.state[1].numpy(), raw.state(), atol=1e-6)


def test_float32_episodes_stay_equal_through_hard_contacts() -> None:
    """Ten agents in one square touch all the time; a physics in float32 is off by 5e-4 here within an episode."""
    config = ENVIRONMENTS.get("mpe/simple_spread")(N=10, max_cycles=50)
    env = config.build(N_ENVS)
    env.reset(seed=3)
    generator = torch.Generator().manual_seed(2)
    raws = [mpe2_of(env, env_index) for env_index in range(N_ENVS)]
    for _ in range(config.max_cycles):
        actions = _random_actions(env, generator)
        env.step(actions)
        for env_index, raw in enumerate(raws):
            _step_raw(env, raw, actions, env_index)
            _assert_equal(env, raw, env_index, 1e-4)

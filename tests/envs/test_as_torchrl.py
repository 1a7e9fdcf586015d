"""A VectorEnv as a torchrl EnvBase: torchrl's own check, its Collector, and the way there and back."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import marlnb
from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.steps import differ, random_actions
from marlnb.envs.torchrl import torchrl_vector_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import EnvError
from tests.envs.phases import Phases
from tests.envs.sample_envs import Masked, Scripted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.collectors import Collector
    from torchrl.envs.utils import check_env_specs

CASES: list[tuple[str, dict[str, Any]]] = [
    ("mpe/simple_spread", {"max_cycles": 4}),
    ("mpe/simple_spread", {"max_cycles": 4, "continuous_actions": True, "state": True}),
    ("mpe/simple_speaker_listener", {"max_cycles": 3}),
    ("pettingzoo/knights_archers_zombies", {"workers": 0, "max_steps": 40}),
    ("vmas/balance", {"max_steps": 3}),
    ("probe/echo", {}),
]


def built(name: str, n_envs: int, **options: Any) -> VectorEnv:
    return ENVIRONMENTS.get(name)(**options).build(n_envs)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_torchrls_own_check(name: str, options: dict[str, Any]) -> None:
    env = marlnb.as_torchrl(built(name, 3, **options))
    check_env_specs(env, break_when_any_done="both")
    check_env_specs(env, seed=1)
    env.close()
    assert env.is_closed


def test_masks() -> None:
    """torchrl's random actions heed them, and agents that are gone stay done."""
    env = marlnb.as_torchrl(pettingzoo_vector_env(Masked, 2, workers=0))
    check_env_specs(env)
    data = env.rollout(12, break_when_any_done=False)
    for group in env.group_map:
        mask, action = data[group, "action_mask"], data[group, "action"]
        assert not mask.all() and mask.gather(-1, action[..., None]).all()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_way_there_and_back_gives_the_same_numbers(name: str, options: dict[str, Any]) -> None:
    env = built(name, 3, **options)
    other = torchrl_vector_env(lambda: marlnb.as_torchrl(built(name, 3, **options)), 3)
    first, second, generator = env.reset(5), other.reset(5), torch.Generator().manual_seed(0)
    assert env.spec.agents == other.spec.agents and env.spec.simultaneous == other.spec.simultaneous
    ended = 0
    for _ in range(60):
        assert not differ(first, second).any()
        assert torch.equal(first.episode_seed, second.episode_seed)
        actions = random_actions(env, first, generator)
        first, second = env.step(actions), other.step(actions)
        ended += int(first.done.sum())
    assert ended >= 3


@pytest.mark.parametrize("constructor", [Scripted, Masked])
def test_agents_that_come_and_go_keep_the_contract(constructor: type) -> None:
    check_vector_env(
        lambda n_envs: torchrl_vector_env(
            lambda: marlnb.as_torchrl(pettingzoo_vector_env(constructor, n_envs, workers=0)), n_envs
        )
    )


def test_a_truncated_episode_has_the_mask_of_its_last_observation() -> None:
    """Phases are 0, 1, 0 and last 1; also on the way back."""
    data = marlnb.as_torchrl(Phases(max_steps=3).build(2)).rollout(3, break_when_any_done=False)
    assert _next(data, 2, "action_mask").tolist() == [[[False, True]] * 2] * 2
    env = torchrl_vector_env(lambda: marlnb.as_torchrl(Phases(max_steps=3).build(2)), 2)
    env.reset(0)
    for choice in (0, 1, 0):
        step = env.step({"agent": torch.full((2, 2), choice)})
    rows = step.groups["agent"]
    assert rows.truncated.all() and rows.final_action_mask is not None and rows.action_mask is not None
    assert rows.final_action_mask.tolist() == [[[False, True]] * 2] * 2
    assert rows.action_mask.tolist() == [[[True, False]] * 2] * 2


def test_no_step_is_lost_between_episodes() -> None:
    """Against the same VectorEnv stepped with the actions that torchrl drew."""
    env = marlnb.as_torchrl(built("mpe/simple_spread", 2, max_cycles=3))
    other = built("mpe/simple_spread", 2, max_cycles=3)
    env.set_seed(7)
    data = env.rollout(8, break_when_any_done=False)
    step = other.reset(7)
    for t in range(8):
        assert torch.equal(data["agent", "observation"][:, t], step.groups["agent"].observation)
        step = other.step({"agent": data["agent", "action"][:, t]})


def _next(data: Any, t: int, name: str) -> Tensor:
    return data["next", "agent", name][:, t]


def test_what_was_seen_last_is_in_next() -> None:
    env = marlnb.as_torchrl(built("mpe/simple_spread", 2, max_cycles=3))
    other = built("mpe/simple_spread", 2, max_cycles=3)
    env.set_seed(7)
    data = env.rollout(3, break_when_any_done=False)
    step = other.reset(7)
    for t in range(3):
        step = other.step({"agent": data["agent", "action"][:, t]})
        assert torch.equal(_next(data, t, "reward")[..., 0], step.groups["agent"].reward)
    assert torch.equal(_next(data, 2, "observation"), step.groups["agent"].final_observation)
    assert data["next", "truncated"][:, 2].all() and not data["next", "terminated"].any()
    assert data["next", "done"].sum() == 2


def test_under_a_collector() -> None:
    env = marlnb.as_torchrl(built("mpe/simple_speaker_listener", 4, max_cycles=5))
    env.set_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collector = Collector(env, policy=None, frames_per_batch=48, total_frames=96)
        batches = list(collector)
        collector.shutdown()
    other = built("mpe/simple_speaker_listener", 4, max_cycles=5)
    step = other.reset(3)
    for data in batches:
        assert data.shape == (4, 12)
        for t in range(12):
            assert all(torch.equal(data[g, "observation"][:, t], step.groups[g].observation) for g in env.group_map)
            step = other.step({g: data[g, "action"][:, t] for g in env.group_map})


def test_seeds() -> None:
    def first(env: Any) -> Tensor:
        return env.reset()["agent", "observation"]

    env = marlnb.as_torchrl(built("mpe/simple_spread", 2))
    env.set_seed(1)
    once, again = first(env), first(env)
    env.set_seed(1)
    assert torch.equal(first(env), once) and not torch.equal(again, once)
    assert torch.equal(first(env), again)
    assert torch.equal(again, built("mpe/simple_spread", 2).reset(3).groups["agent"].observation)


def test_a_running_copy_cannot_be_reset_alone() -> None:
    env = marlnb.as_torchrl(built("mpe/simple_spread", 2))
    data = env.rand_step(env.reset())
    data = env.step_mdp(data)
    data["_reset"] = torch.tensor([[True], [False]])
    with pytest.raises(EnvError, match=r"envs \[0\] are in the middle of their episodes"):
        env.reset(data)


def test_an_ended_copy_must_be_reset_before_it_is_stepped() -> None:
    env = marlnb.as_torchrl(built("mpe/simple_spread", 2, max_cycles=1))
    data = env.rand_step(env.reset())
    with pytest.raises(EnvError, match=r"reset envs \[0, 1\] first"):
        env.rand_step(env.step_mdp(data))

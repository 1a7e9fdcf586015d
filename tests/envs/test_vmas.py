"""VMAS as a VectorEnv: the contract, VMAS's own numbers, known scores, and errors."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env
from marlnb.envs.steps import random_actions
from marlnb.envs.vector import VectorEnv
from marlnb.envs.vmas.scenarios import scenario_files
from marlnb.errors import ConfigError, EnvError


def built(name: str, n_envs: int, **options: Any) -> VectorEnv:
    return ENVIRONMENTS.get(f"vmas/{name}")(**options).build(n_envs)


def raw(name: str, n_envs: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vmas

        return vmas.make_env(name, num_envs=n_envs, seed=0, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("balance", {}),
        ("navigation", {}),
        ("transport", {"continuous_actions": False}),
        ("football", {"kwargs": {"ai_red_agents": False}}),
        ("wind_flocking", {}),
        ("simple_speaker_listener", {"continuous_actions": False, "multidiscrete_actions": True}),
        ("simple_world_comm", {}),
    ],
)
def test_contract(name: str, options: dict[str, Any]) -> None:
    check_vector_env(lambda n_envs: built(name, n_envs, max_steps=7, **options))


@pytest.mark.parametrize("name", sorted(scenario_files()))
def test_every_scenario_steps(name: str) -> None:
    env = built(name, 2, max_steps=3)
    step, generator = env.reset(5), torch.Generator().manual_seed(0)
    for _ in range(3):
        step = env.step(random_actions(env, step, generator))
        ended = [rows.terminated | rows.truncated for rows in step.groups.values()]
        assert all(torch.equal(rows, step.done[:, None].expand_as(rows)) for rows in ended)
    assert step.done.all() or name == "road_traffic"


@pytest.mark.parametrize(("name", "continuous"), [("navigation", True), ("balance", False), ("simple_crypto", True)])
def test_batches_give_the_numbers_of_vmas(name: str, continuous: bool) -> None:
    """Stepped and reset by VMAS itself, with the same seed and actions."""
    env = built(name, 5, max_steps=8, seeds="batch", continuous_actions=continuous)
    other = raw(name, 5, continuous_actions=continuous)
    step, observations = env.reset(3), other.reset(seed=3)
    generator = torch.Generator().manual_seed(0)
    names = [agent.name for agent in other.agents]
    for t in range(1, 25):
        seen = {a: step.groups[g.name].observation[:, i] for g in env.spec.groups for i, a in enumerate(g.agents)}
        assert all(torch.equal(seen[agent], observations[i]) for i, agent in enumerate(names))
        actions = random_actions(env, step, generator)
        by_agent = {a: actions[g.name][:, i] for g in env.spec.groups for i, a in enumerate(g.agents)}
        step = env.step(actions)
        observations, rewards, done, _ = other.step([by_agent[agent].clone() for agent in names])
        truncated = torch.full((5,), t % 8 == 0)
        got = {a: step.groups[g.name].reward[:, i] for g in env.spec.groups for i, a in enumerate(g.agents)}
        assert all(torch.equal(got[agent], rewards[i]) for i, agent in enumerate(names))
        assert torch.equal(step.done, done | truncated) and not done.any()
        if truncated.all():
            final = {
                a: step.groups[g.name].final_observation[:, i] for g in env.spec.groups for i, a in enumerate(g.agents)
            }
            assert all(torch.equal(final[agent], observations[i]) for i, agent in enumerate(names))
            assert all(rows.truncated.all() and not rows.terminated.any() for rows in step.groups.values())
            observations = other.reset()


def test_episodes_start_where_vmas_starts_them_under_their_seeds() -> None:
    env, other = built("navigation", 3, max_steps=2), raw("navigation", 3)
    step = env.reset(11)
    for _ in range(2):
        step = env.step(random_actions(env, step, torch.Generator().manual_seed(0)))
    assert step.episode_seed.tolist() == [14, 15, 16]
    for index in range(3):
        other.seed(14 + index)
        other.reset_at(index)
    observations = other.get_from_scenario(True, False, False, False)[0]
    assert torch.equal(step.groups["agent"].observation, torch.stack(observations, 1))


def test_the_process_keeps_its_random_numbers() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    env = built("wind_flocking", 2)
    env.reset(0)
    env.step({g.name: torch.zeros(2, g.n_agents, 2) for g in env.spec.groups})
    assert torch.equal(torch.rand(3), expected)


def test_a_fallen_package_terminates_and_time_truncates() -> None:
    env = built("balance", 40, max_steps=90)
    step, generator, fallen = env.reset(0), torch.Generator().manual_seed(0), 0
    for _ in range(90):
        step = env.step(random_actions(env, step, generator))
        rows = step.groups["agent"]
        assert not (rows.terminated & rows.truncated).any()
        assert torch.equal(rows.terminated.any(1), rows.terminated.all(1))
        fallen += int(rows.terminated[:, 0].sum())
    assert fallen > 5 and rows.truncated.any()


def _heuristic(observation: Tensor) -> Tensor:
    """VMAS's own (vmas.scenarios.balance.HeuristicPolicy): push up while the package is below the goal."""
    below = observation[..., 9]
    push = torch.where(below >= 0, 0.0, (-below).clamp(-1, 1))
    return torch.stack([torch.zeros_like(push), push], -1)


def balance_score(policy: str, n_envs: int = 256) -> float:
    """Mean return of an agent in each copy's first episode."""
    env = built("balance", n_envs)
    step, generator = env.reset(0), torch.Generator().manual_seed(0)
    returns, running = torch.zeros(n_envs), torch.ones(n_envs, dtype=torch.bool)
    for _ in range(100):
        observation = step.groups["agent"].observation
        actions = {"agent": _heuristic(observation)} if policy == "heuristic" else random_actions(env, step, generator)
        step = env.step(actions)
        returns += step.groups["agent"].reward.mean(1) * running
        running &= ~step.done
    assert not running.any()
    return float(returns.mean())


def test_known_scores_on_balance() -> None:
    """VMAS alone, over 512 episodes: random -10.0, its heuristic +11.1; standard errors of 256: 0.35 and 0.85."""
    assert balance_score("random") == pytest.approx(-10.0, abs=1.0)
    assert balance_score("heuristic") == pytest.approx(11.1, abs=2.0)


def test_labels_are_where_agents_are() -> None:
    env = built("navigation", 4)
    observation, labels = env.reset(0).groups["agent"].observation, env.labels()
    assert torch.equal(labels["agent_position_x"], observation[..., 0])
    assert torch.equal(labels["agent_velocity_y"], observation[..., 3])
    assert env.spec.labels[0].group == "agent"


def test_custom_groups() -> None:
    env = built("balance", 2, groups={"left": ("agent_0",), "right": ("agent_2", "agent_1")})
    step, plain = env.reset(0), built("balance", 2).reset(0).groups["agent"]
    assert torch.equal(step.groups["right"].observation, plain.observation[:, [2, 1]])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda env: env.step({}), "reset before the first step"),
        (lambda env: (env.reset(0), env.step({})), "no actions for group 'agent'"),
        (lambda env: (env.reset(0), env.step({"agent": torch.zeros(2, 3)})), r"got torch.float32 of shape \[2, 3\]"),
        (lambda env: (env.reset(0), env.step({"agent": torch.full((2, 3, 2), 1.1)})), "in env 0 is not in"),
        (lambda env: (env.reset(0), env.step({"agent": torch.full((2, 3, 2), torch.nan)})), "nan"),
        (lambda env: env.render(2), "environments 0 to 1; got 2"),
    ],
)
def test_errors(act: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        act(built("balance", 2))


def test_arguments_that_vmas_rejects() -> None:
    with pytest.raises(EnvError, match=r"vmas/balance: the constructor, called with \{'n_agents': 'three'\}, raised"):
        built("balance", 2, kwargs={"n_agents": "three"})
    with pytest.raises(EnvError, match="at least one env"):
        built("balance", 0)
    with pytest.raises(ConfigError, match="valid: multidiscrete_actions=true continuous_actions=false"):
        built("balance", 1, multidiscrete_actions=True)
    with pytest.raises(ConfigError, match="seeds"):
        built("balance", 2, seeds="copy")


def test_render() -> None:
    env = built("balance", 2)
    env.reset(0)
    try:
        picture = env.render(1)
    except EnvError as error:
        assert "needs EGL or a display" in str(error)
    else:
        assert picture.shape == (700, 700, 3) and picture.dtype == "uint8" and picture.std() > 1
        assert not (picture == env.render(0)).all()
    env.close()


def test_listing_imports_neither_vmas_nor_torchrl() -> None:
    code = (
        "import sys; from marlnb.config import ENVIRONMENTS as e; assert 'vmas/navigation' in e.names(); "
        "print([m for m in ('vmas', 'torchrl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

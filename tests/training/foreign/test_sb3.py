"""Stable-Baselines3's models: the same actions, values and log-probabilities as the models' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO

import marlnb as mnb
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import CheckpointError, ConfigError

pytestmark = pytest.mark.filterwarnings("ignore")  # Stable-Baselines3's own
SEEN = gym.spaces.Box(-np.inf, np.inf, (18,), np.float32)
CHOICES, FORCES = gym.spaces.Discrete(5), gym.spaces.Box(0.0, 1.0, (5,), np.float32)


class Lone(gym.Env[Any, Any]):
    """One agent's spaces, as SuperSuit shows them to a model that all agents share; it is never stepped."""

    observation_space = SEEN

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(18, np.float32), {}


def model_of(kind: Any, space: gym.Space[Any], seed: int = 0) -> Any:
    return kind("MlpPolicy", Lone(space), seed=seed, device="cpu", policy_kwargs={"net_arch": [12, 8]})


@pytest.fixture
def seen() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(6, 3, 18)).astype(np.float32)


@pytest.mark.parametrize(("kind", "space"), [(PPO, CHOICES), (A2C, FORCES), (DQN, CHOICES)], ids=["PPO", "A2C", "DQN"])
def test_it_acts_and_judges_as_the_model(kind: Any, space: Any, seen: np.ndarray, tmp_path: Path) -> None:
    model, env = model_of(kind, space), SimpleSpreadConfig(continuous_actions=space is FORCES)
    if space is FORCES:
        model.policy.log_std.data.fill_(-0.7)
    policy = mnb.agents_from_sb3(model, env, path=tmp_path).by_group["agent"]
    actions, _ = model.predict(seen.reshape(-1, 18), deterministic=True)
    chosen = policy.act(torch.from_numpy(seen), explore=False)
    np.testing.assert_allclose(chosen.action.reshape(actions.shape), actions, atol=1e-6)
    assert [s.name for s in policy.sites()][:3] == [f"agent/actor/{x}" for x in ("hidden_1", "hidden_2", "head")]
    if kind is DQN:
        assert not policy.has_critic
        return
    flat = torch.from_numpy(seen.reshape(-1, 18))
    drawn = model.policy(flat)[0].clamp(0.01, 0.99) if space is FORCES else torch.from_numpy(actions)
    values, log_prob, _ = model.policy.evaluate_actions(flat, drawn)
    own, _ = policy.value({"agent": torch.from_numpy(seen)})
    np.testing.assert_allclose(own.reshape(-1).detach(), values[:, 0].detach(), atol=1e-6)
    stored = (2 * drawn - 1).reshape(6, 3, 5) if space is FORCES else drawn.reshape(6, 3)
    distribution = policy.distribution
    assert distribution is not None
    mine = distribution.log_prob(policy.logits(torch.from_numpy(seen))[0], stored)
    np.testing.assert_allclose(mine.reshape(-1).detach(), log_prob.detach(), atol=1e-5)


def test_a_model_an_agent_and_a_zip(seen: np.ndarray, tmp_path: Path) -> None:
    models: dict[str, Any] = {f"agent_{index}": model_of(PPO, CHOICES, index) for index in range(3)}
    models["agent_1"].save(tmp_path / "second")
    models["agent_1"] = tmp_path / "second.zip"
    agents = mnb.agents_from_sb3(models, "mpe/simple_spread", path=tmp_path)
    assert agents.networks == {"agent": [0, 1, 2]}
    action = agents.by_group["agent"].act(torch.from_numpy(seen), explore=False).action
    for index in range(3):
        own = model_of(PPO, CHOICES, index).predict(seen[:, index], deterministic=True)[0]
        np.testing.assert_array_equal(action[:, index], own)
    recording = mnb.record(agents, episodes=2, sites="*", progress=False)
    assert recording["agent/critic/agent_2/hidden_1"].to_numpy().shape == (50, 1, 12)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the groups"):
        mnb.agents_from_sb3({"nobody": None}, "mpe/simple_spread", path=tmp_path)
    recurrent = model_of(PPO, CHOICES)
    recurrent.policy.lstm_actor = torch.nn.LSTM(18, 18)  # as sb3-contrib's RecurrentPPO has
    with pytest.raises(ConfigError, match="LSTM layers; where a policy remembers"):
        mnb.agents_from_sb3(recurrent, "mpe/simple_spread", path=tmp_path)
    with pytest.raises(CheckpointError, match="no model of Stable-Baselines3 at nothing"):
        mnb.agents_from_sb3("nothing.zip", "mpe/simple_spread", algorithm="PPO", path=tmp_path)
    with pytest.raises(ConfigError, match=r"no algorithm 'SAC'"):
        mnb.agents_from_sb3("x.zip", "mpe/simple_spread", algorithm="SAC", path=tmp_path)  # type: ignore[arg-type]

"""Stable-Baselines3's models: the same actions, values and log-probabilities as the models' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import A2C, DQN, PPO

import marlnb as mnb
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import CheckpointError, ConfigError
from tests.envs.sample_envs import Screens

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


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_images_are_seen_as_the_model_saw_them(kind: Any, tmp_path: Path) -> None:
    class Eye(Lone):
        observation_space = gym.spaces.Box(0, 255, (40, 36, 3), np.uint8)

    options = {} if kind is PPO else {"buffer_size": 10}
    model = kind("CnnPolicy", Eye(gym.spaces.Discrete(4)), seed=0, device="cpu", **options)
    agents = mnb.agents_from_sb3(model, lambda: Screens((40, 36, 3)), path=tmp_path)
    policy = agents.by_group["eye"]
    images = np.random.default_rng(0).integers(0, 256, (6, 2, 40, 36, 3), np.uint8)
    flat = images.reshape(12, 40, 36, 3)
    chosen = policy.act(torch.from_numpy(images), explore=False).action
    np.testing.assert_array_equal(chosen.reshape(-1), model.predict(flat, deterministic=True)[0])
    first = torch.from_numpy(flat).movedim(-1, 1)
    logits = policy.logits(torch.from_numpy(images))[0].reshape(12, 4)
    if kind is PPO:
        theirs = model.policy.get_distribution(first).distribution.logits
        torch.testing.assert_close(logits.log_softmax(-1), theirs)
        values = policy.value({"eye": torch.from_numpy(images)})[0].reshape(12, 1)
        torch.testing.assert_close(values, model.policy.predict_values(first))
    else:
        torch.testing.assert_close(logits, model.q_net(first))
    names = [site.name for site in policy.sites() if "/actor/" in site.name]
    assert names == [f"eye/actor/{name}" for name in ("hidden_3", "hidden_4", "head")]  # of maps as one row of units
    recording = mnb.record(agents, episodes=2, n_envs=1, progress=False)
    assert recording["eye/actor/hidden_4"].to_numpy().shape == (10, 2, 512)
    attribution = mnb.attribute(
        recording, group="eye", method="saliency", policies=agents.by_group, steps=[0], progress=False
    )
    assert attribution.values.shape[-1] == 40 * 36 * 3 and np.nanmax(np.abs(attribution.values)) > 0


def test_a_multilayer_perceptron_sees_images_as_the_model_does(tmp_path: Path) -> None:
    class Eye(Lone):
        observation_space = gym.spaces.Box(0, 255, (40, 36, 3), np.uint8)

    model = PPO("MlpPolicy", Eye(gym.spaces.Discrete(4)), seed=0, device="cpu")
    policy = mnb.agents_from_sb3(model, lambda: Screens((40, 36, 3)), path=tmp_path).by_group["eye"]
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 2, 40, 36, 3), np.uint8))
    channels_first = images.reshape(12, 40, 36, 3).movedim(-1, 1)
    theirs = model.policy.get_distribution(channels_first).distribution.logits
    torch.testing.assert_close(policy.logits(images)[0].reshape(12, 4).log_softmax(-1), theirs)
    values = policy.value({"eye": images})[0].reshape(12, 1)
    torch.testing.assert_close(values, model.policy.predict_values(channels_first))


MEMORIES: dict[str, dict[str, Any]] = {
    "each its own": {},
    "two layers": {"n_lstm_layers": 2},
    "shared": {"shared_lstm": True, "enable_critic_lstm": False},
    "none for the critic": {"enable_critic_lstm": False},
}


def remembering(options: dict[str, Any], space: Any = CHOICES, seed: int = 0) -> Any:
    options = {"net_arch": [12, 8], "lstm_hidden_size": 7, **options}
    return RecurrentPPO("MlpLstmPolicy", Lone(space), seed=seed, device="cpu", policy_kwargs=options)


@pytest.mark.parametrize("space", [CHOICES, FORCES], ids=["choices", "forces"])
@pytest.mark.parametrize("case", MEMORIES)
def test_what_remembers_acts_and_judges_as_the_model(case: str, space: Any, tmp_path: Path) -> None:
    model = remembering(MEMORIES[case], space)
    agents = mnb.agents_from_sb3(model, SimpleSpreadConfig(continuous_actions=space is FORCES), path=tmp_path)
    policy = agents.by_group["agent"]
    seen = np.random.default_rng(0).normal(size=(5, 6, 3, 18)).astype(np.float32)  # [t, env, agent, feature]
    theirs: Any = None
    memory: Any = None
    judge: Any = None
    layers = MEMORIES[case].get("n_lstm_layers", 1)
    empty = tuple(torch.zeros(layers, 18, 7) for _ in range(2))
    states = RNNStates(empty, empty)
    for t in range(5):
        starts = np.full(18, t == 0)
        action, theirs = model.predict(seen[t].reshape(18, 18), theirs, starts, deterministic=True)
        chosen = policy.act(torch.from_numpy(seen[t]), recurrent=memory, explore=False)
        np.testing.assert_allclose(chosen.action.reshape(action.shape), action, atol=1e-6)
        memory = chosen.recurrent
        expected = np.concatenate(theirs).transpose(1, 0, 2).reshape(6, 3, 2 * layers, 7)  # hidden, then cell
        np.testing.assert_allclose(memory, expected, atol=1e-6)
        flat = torch.from_numpy(seen[t].reshape(18, 18))
        with torch.no_grad():
            _, value, _, states = model.policy.forward(flat, states, torch.from_numpy(starts).float(), True)
        own, judge = policy.value({"agent": torch.from_numpy(seen[t])}, recurrent=judge)
        np.testing.assert_allclose(own.reshape(-1).detach(), value[:, 0], atol=1e-6)
    assert (judge is None) == (case == "none for the critic")
    numbers = "_1" if layers == 2 else ""
    assert f"agent/actor/lstm{numbers}" in {site.name for site in policy.sites()}


def test_models_that_remember_of_each_agent_are_saved_recorded_explained_and_edited(tmp_path: Path) -> None:
    models: dict[str, Any] = {f"agent_{k}": remembering({}, seed=k) for k in range(3)}
    zips: dict[str, Any] = {}
    for name, model in models.items():
        model.save(tmp_path / name)
        zips[name] = tmp_path / name
    agents = mnb.agents_from_sb3(zips, SimpleSpreadConfig(max_cycles=6), algorithm="RecurrentPPO", path=tmp_path)
    recording = mnb.record(agents, episodes=3, sites="*", progress=False)
    seen = recording.steps("agent", "observation").sel(episode=1).to_numpy()
    recorded = recording.steps("agent", "action").sel(episode=1).to_numpy()
    for k, model in enumerate(models.values()):
        states: Any = None
        for t in range(6):
            action, states = model.predict(seen[t, k], states, np.full(1, t == 0), deterministic=True)
            assert action == recorded[t, k]
    hidden = recording["agent/actor/agent_2/lstm"].sel(episode=1).to_numpy()[:, 0]
    entering = recording.recurrent("agent").sel(episode=1).to_numpy()
    np.testing.assert_allclose(entering[1:, 2, 0], hidden[:-1], atol=1e-6)
    assert np.abs(hidden).max() > 0.1
    attribution = mnb.attribute(
        recording, group="agent", agent="agent_1", to="action", policies=agents.by_group, progress=False
    )
    assert np.nanmax(np.abs(attribution.convergence_delta)) < 1e-2 and np.nanmax(np.abs(attribution.values)) > 0
    wiped = mnb.intervene(agents, mnb.Ablate("agent/actor/agent_1/lstm"), episodes=2)
    moved = [wiped.of("tv_direct", f"agent_{k}").difference for k in range(3)]
    assert moved[1] > 0 and moved[0] == moved[2] == 0


def test_images_are_remembered_as_the_model_remembers_them(tmp_path: Path) -> None:
    class Eye(Lone):
        observation_space = gym.spaces.Box(0, 255, (40, 36, 3), np.uint8)

    options = {"lstm_hidden_size": 7}
    model = RecurrentPPO("CnnLstmPolicy", Eye(gym.spaces.Discrete(4)), seed=0, device="cpu", policy_kwargs=options)
    agents = mnb.agents_from_sb3(model, lambda: Screens((40, 36, 3)), path=tmp_path)
    policy = agents.by_group["eye"]
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 40, 36, 3), np.uint8)
    theirs: Any = None
    memory: Any = None
    for t in range(3):
        action, theirs = model.predict(images[t], theirs, np.full(2, t == 0), deterministic=True)
        chosen = policy.act(torch.from_numpy(images[t])[None], recurrent=memory, explore=False)
        memory = chosen.recurrent
        np.testing.assert_array_equal(chosen.action[0], action)
        np.testing.assert_allclose(memory[0, :, 1], theirs[1][0], atol=1e-6)
    names = [site.name.removeprefix("eye/actor/") for site in policy.sites()][:5]
    assert names == ["hidden_3", "hidden_4", "cell", "lstm", "head"]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the groups"):
        mnb.agents_from_sb3({"missing": None}, "mpe/simple_spread", path=tmp_path)
    odd = model_of(PPO, CHOICES)
    odd.policy.memory = torch.nn.LSTM(18, 18)  # of a custom policy
    with pytest.raises(ConfigError, match="LSTM layers; a recurrent policy takes its state"):
        mnb.agents_from_sb3(odd, "mpe/simple_spread", path=tmp_path)
    with pytest.raises(CheckpointError, match="no Stable-Baselines3 model at nothing"):
        mnb.agents_from_sb3("nothing.zip", "mpe/simple_spread", algorithm="PPO", path=tmp_path)
    with pytest.raises(ConfigError, match=r"no algorithm 'SAC'"):
        mnb.agents_from_sb3("x.zip", "mpe/simple_spread", algorithm="SAC", path=tmp_path)  # type: ignore[arg-type]

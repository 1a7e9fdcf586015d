"""A recording says what happened: activations from the weights by hand, and the same steps when taken again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS, EnvConfig, ModelConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, make_run

Weights = Mapping[str, np.ndarray]


def weights_of(run: Run, group: str, agent: int, shared: bool, part: str) -> Weights:
    """One agent's own matrices, by layer, as float64."""
    state = run.policies()[group].state_dict()
    own = {
        name.removeprefix(f"{part}.network."): value.double().numpy() for name, value in state.items() if part in name
    }
    return own if shared else {name: value[agent] for name, value in own.items()}


def affine(weights: Weights, layer: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gru_step(weights: Weights, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Cho et al. 2014, as torch.nn.GRUCell writes it: reset, update, candidate."""
    n = len(h)
    given, own = affine(weights, "gru.input", x), affine(weights, "gru.state", h)
    reset, update = sigmoid(given[:n] + own[:n]), sigmoid(given[n : 2 * n] + own[n : 2 * n])
    candidate = np.tanh(given[2 * n :] + reset * own[2 * n :])
    return (1 - update) * candidate + update * h


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "unshared"])
@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_activations_equal_each_agents_own_forward(tmp_path: Path, kind: str, shared: bool) -> None:
    sizes = {"hidden": (8, 6) if kind == "mlp" else (8,), "share_parameters": shared}
    model: ModelConfig = MLPConfig(**sizes) if kind == "mlp" else GRUConfig(recurrent_size=5, **sizes)
    run = make_run(tmp_path / "run", LivesConfig(), model, centralised=False)
    with record(run, sites="*", episodes=7, n_envs=3, seed=11, explore=True, progress=False) as recording:
        for agent, name in enumerate(recording.group_agents("a")):
            _check_actor(run, recording, name, agent, kind, shared)
            _check_critic(run, recording, name, agent, kind, shared)


def _check_actor(run: Run, recording: Recording, name: str, agent: int, kind: str, shared: bool) -> None:
    weights = weights_of(run, "a", agent, shared, "actor")
    for number in recording.episodes.index:
        picked = {"agent": name, "episode": number}
        x = recording.steps("a", "observation").sel(**picked).to_numpy().astype(np.float64)
        activations = {
            site.split("/")[-1]: recording[site].sel(**picked).to_numpy()
            for site in recording.sites
            if "a/actor" in site
        }
        top = _check_hidden(weights, x, activations)
        if kind == "gru":
            entering = recording.recurrent("a").sel(**picked).to_numpy()[:, 0]
            state = np.zeros(5)
            for t in range(len(x)):
                np.testing.assert_allclose(entering[t], state, atol=1e-5)
                state = gru_step(weights, top[t], state)
                np.testing.assert_allclose(activations["gru"][t], state, atol=1e-5)
            top = activations["gru"].astype(np.float64)
        np.testing.assert_allclose(activations["head"], affine(weights, "head", top), atol=1e-5)
        allowed = recording.steps("a", "action_mask").sel(**picked).to_numpy()
        logits = recording.steps("a", "logits").sel(**picked).to_numpy()
        np.testing.assert_allclose(logits[allowed], activations["head"][allowed], atol=1e-5)
        scores = np.where(allowed, activations["head"], -np.inf)
        log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        action = recording.steps("a", "action").sel(**picked).to_numpy()
        assert allowed[np.arange(len(action)), action].all()
        chosen = recording.steps("a", "log_prob").sel(**picked).to_numpy()
        np.testing.assert_allclose(chosen, log_probs[np.arange(len(action)), action], atol=1e-4)


def _check_critic(run: Run, recording: Recording, name: str, agent: int, kind: str, shared: bool) -> None:
    weights = weights_of(run, "a", agent, shared, "critic")
    for number in recording.episodes.index:
        picked = {"agent": name, "episode": number}
        x = recording.steps("a", "observation").sel(**picked).to_numpy().astype(np.float64)
        activations = {
            site.split("/")[-1]: recording[site].sel(**picked).to_numpy()
            for site in recording.sites
            if "a/critic" in site
        }
        top = _check_hidden(weights, x, activations)
        if kind == "gru":
            state = np.zeros(5)
            for t in range(len(x)):
                state = gru_step(weights, top[t], state)
                np.testing.assert_allclose(activations["gru"][t], state, atol=1e-5)
            top = activations["gru"].astype(np.float64)
        value = affine(weights, "head", top)
        np.testing.assert_allclose(activations["head"], value, atol=1e-5)
        recorded = recording.steps("a", "value").sel(**picked).to_numpy()
        np.testing.assert_allclose(recorded, value[:, 0], atol=1e-5)  # an untrained value normaliser changes nothing


def _check_hidden(weights: Weights, x: np.ndarray, activations: Mapping[str, np.ndarray]) -> np.ndarray:
    for index in range(sum(name.startswith("hidden") for name in activations)):
        x = np.tanh(affine(weights, f"hidden.{index}.linear", x))
        np.testing.assert_allclose(activations[f"hidden_{index + 1}"], x, atol=1e-5)
    return x


@pytest.mark.parametrize("env", ["mpe/simple_speaker_listener", "mpe/simple_spread", "pettingzoo/simple_spread"])
def test_the_recorded_actions_taken_again_give_the_recorded_steps(tmp_path: Path, env: str) -> None:
    config: EnvConfig = ENVIRONMENTS.get(env)()
    run = make_run(tmp_path / "run", config)
    with record(run, episodes=5, n_envs=2, seed=77, explore=True, sites="*/actor/head", progress=False) as recording:
        with config.build(1) as single:
            for number, episode in recording.episodes.iterrows():
                _replay(single, recording, int(number), int(episode["seed"]))


def _replay(env: object, recording: Recording, number: int, seed: int) -> None:
    step = env.reset(seed)  # type: ignore[attr-defined]
    length = int(recording.episodes.loc[number, "length"])
    recorded = {
        group: {
            field: recording.steps(group, field).sel(episode=number).to_torch() for field in recording.fields(group)
        }
        for group in recording.groups
    }
    for t in range(length):
        for group, fields in recorded.items():
            torch.testing.assert_close(
                step.groups[group].observation[0], fields["observation"][t], atol=1e-6, rtol=1e-5
            )
        step = env.step({group: fields["action"][t][None] for group, fields in recorded.items()})  # type: ignore[attr-defined]
        for group, fields in recorded.items():
            torch.testing.assert_close(step.groups[group].reward[0], fields["reward"][t], atol=1e-5, rtol=1e-5)
            assert torch.equal(step.groups[group].truncated[0], fields["truncated"][t])
    assert bool(step.done[0])

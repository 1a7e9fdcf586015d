"""Every analysis of agents from elsewhere: torchrl's network and Stable-Baselines3's, shared by the agents or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from torch import Tensor, nn
from torchrl.modules import MultiAgentMLP

import marlnb as mnb
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import AnalysisError
from marlnb.models.hooks.apply_edits import edited
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

pytestmark = pytest.mark.filterwarnings("ignore")  # torchrl's and Stable-Baselines3's own
ENV = SimpleSpreadConfig(max_cycles=8)
EPISODES = 24


class Lone(gym.Env[Any, Any]):
    """One agent's spaces; it is never stepped."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (18,), np.float32)
    action_space = gym.spaces.Discrete(5)


def made(kind: str, path: Path) -> tuple[Agents, list[Any]]:
    """The agents, and for each of the three its own network, from 18 numbers to 5 logits."""
    torch.manual_seed(0)
    source, sharing = kind.split(", ")
    if source == "torchrl":
        net = MultiAgentMLP(
            18, 5, n_agents=3, centralized=False, share_params=sharing == "shared", depth=2, num_cells=16
        )

        def of(agent: int) -> Any:
            return lambda seen: net(seen.unsqueeze(1).expand(-1, 3, -1))[:, agent]

        return mnb.agents_from_module(net, ENV, path=path), [of(agent) for agent in range(3)]
    models = [
        PPO("MlpPolicy", Lone(), seed=seed, device="cpu", policy_kwargs={"net_arch": [16, 16], "ortho_init": False})
        for seed in range(1 if sharing == "shared" else 3)
    ]
    given = models[0] if len(models) == 1 else {f"agent_{k}": model for k, model in enumerate(models)}

    def logits(model: Any) -> Any:
        return lambda seen: model.policy.action_net(model.policy.mlp_extractor.forward_actor(seen))

    return mnb.agents_from_sb3(given, ENV, path=path), [logits(models[k % len(models)]) for k in range(3)]


@pytest.fixture(scope="module", params=["torchrl, shared", "torchrl, unshared", "SB3, shared", "SB3, unshared"])
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Agents, list[Any], Recording, str]]:
    agents, own = made(request.param, tmp_path_factory.mktemp("elsewhere"))
    layer = "agent/actor/agent_1/hidden_2" if request.param == "SB3, unshared" else "agent/actor/hidden_2"
    with mnb.record(agents, episodes=EPISODES, sites="*", seed=3, progress=False) as recording:
        yield agents, own, recording, layer


Case = tuple[Agents, list[Any], Recording, str]


def test_attribution_and_influence(case: Case) -> None:
    agents, own, recording, layer = case
    asked: dict[str, Any] = {"group": "agent", "policies": agents.by_group}
    attribution = mnb.attribute(recording, to="logit", target=2, progress=False, **asked)
    seen = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    for agent in range(3):
        here, mean = own[agent](seen[:, agent]), own[agent](seen[:, agent].mean(0, keepdim=True))
        change = (here - mean)[:, 2].detach()
        np.testing.assert_allclose(attribution.values[:, agent].sum(-1), change, atol=2e-3)
    units = mnb.attribute(recording, site=layer, agent="agent_1", progress=False, n_steps=5, **asked)
    assert units.values.shape == (len(recording), 1, 16) and units.values.any()
    between = mnb.influence(recording, **asked, n_steps=5)
    assert (between.values > 0).all()  # everyone sees everyone
    with pytest.raises(AnalysisError, match=r"external agents: .*; in Python pass policies=agents\.by_group"):
        mnb.attribute(recording, group="agent", progress=False)


def test_q_values_are_no_probabilities(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = MultiAgentMLP(18, 5, n_agents=3, centralized=False, share_params=True, depth=1, num_cells=8)
    agents = mnb.agents_from_module(net, ENV, distribution="greedy", path=tmp_path)
    with mnb.record(agents, episodes=4, progress=False) as recording:
        with pytest.raises(AnalysisError, match="measure='total_variation'"):
            mnb.influence(recording, "communication", policies=agents.by_group)
        influence = mnb.influence(recording, "communication", measure="total_variation", policies=agents.by_group)
    assert (influence.values[~np.eye(3, dtype=bool)] == 0).all()  # in simple_spread all messages are 0


def units(recording: Recording, layer: str) -> np.ndarray:
    """agent_1's, `[row, unit]`."""
    return recording[layer].sel(agent="agent_1").to_numpy().reshape(len(recording), -1)


def test_readings_of_units(case: Case) -> None:
    _, _, recording, layer = case
    planted = units(recording, layer).sum(-1)  # a linear reading of the layer, so R^2 is 1
    decoded = mnb.decode(recording, site=layer, label=planted, agent="agent_1", n_shuffles=2, progress=False)
    assert decoded.of("agent_1").score == pytest.approx(1, abs=0.01)
    assert any("no untrained network" in note and "policies=" in note for note in decoded.warnings)
    tuned = mnb.tuning(recording, site=layer, label=planted, agent="agent_1", n_shuffles=20, n_bootstrap=20)
    assert tuned.n_units == 16
    one = (recording, layer, "agent_1")
    assert mnb.similarity(one, one, n_shuffles=2, n_bootstrap=20).score == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("remembers", [False, True])
def test_the_untrained_control_has_their_weights_in_another_order(remembers: bool, tmp_path: Path) -> None:
    """Four units that read nothing but one feature; shuffled, each of their four weights falls anywhere among 72."""
    torch.manual_seed(0)
    eyes = nn.Linear(18, 4)
    with torch.no_grad():
        eyes.weight.zero_()
        eyes.weight[:, 2] = torch.tensor([1.0, -0.5, 0.7, 0.2])
    before = eyes.weight.clone()
    module: nn.Module = nn.Sequential(eyes, nn.Tanh(), nn.Linear(4, 5))
    shape = None
    if remembers:
        module, shape = Remembering(module), (1, 5)
    agents = mnb.agents_from_module(module, "mpe/simple_spread", recurrent_shape=shape, path=tmp_path)
    recording = mnb.record(agents, episodes=60, explore=True, progress=False)
    asked: dict[str, Any] = {"label": lambda r: r.steps("agent", "observation").to_numpy()[:, :, 2], "agent": "agent_1"}
    layer = "agent/actor/inner.0" if remembers else "agent/actor/hidden_1"
    score = mnb.decode(recording, site=layer, n_shuffles=2, policies=agents.by_group, **asked).of("agent_1")
    assert score.score > 0.95 and score.untrained is not None and score.untrained < 0.5
    assert torch.equal(eyes.weight, before)
    with torch.no_grad():  # a network that knows nothing to begin with is as good as its control
        eyes.weight.normal_(generator=torch.Generator().manual_seed(1))
    agents = mnb.agents_from_module(module, "mpe/simple_spread", recurrent_shape=shape, path=tmp_path / "random")
    recording = mnb.record(agents, episodes=60, explore=True, progress=False)
    random = mnb.decode(recording, site=layer, n_shuffles=2, policies=agents.by_group, **asked).of("agent_1")
    assert random.untrained == pytest.approx(random.score, abs=0.35)


class Remembering(nn.Module):
    """A module whose output is added to half of what it remembers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        after = self.inner(x) + 0.5 * state[:, :, 0]
        return after, after.unsqueeze(2)


def test_one_agent_is_silenced(case: Case) -> None:
    """The others' outputs stay as they were to the last bit, and all of the effect goes through the layer above."""
    agents, _, recording, layer = case
    policy, silence = agents.by_group["agent"], mnb.Ablate(layer, agents=("agent_1",))
    seen = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    with torch.no_grad():
        plain = policy.logits(seen)[0]
        with edited(policy, [silence]):
            changed = policy.logits(seen)[0]
    assert torch.equal(plain[:, [0, 2]], changed[:, [0, 2]]) and (plain[:, 1] != changed[:, 1]).any()
    result = mnb.intervene(agents, silence, episodes=8, seed=0)
    evaluation = mnb.evaluate(agents, episodes=8, seed=0, edits=[silence])
    assert result.of("return", "agent").after == pytest.approx(evaluation.return_mean["agent"], abs=1e-5)
    assert [result.of("tv_direct", f"agent_{k}").after > 0 for k in range(3)] == [False, True, False]
    below = mnb.Ablate(layer.replace("hidden_2", "hidden_1"), agents=("agent_1",))
    traced = mnb.trace(agents, below, outcome="actions", sites=layer, agents=["agent_1"], span=8, episodes=4, seed=0)
    np.testing.assert_allclose(traced.recovered, 1, atol=1e-6)


def test_what_the_head_reads_is_used_and_the_rest_is_not(case: Case) -> None:
    agents, _, recording, layer = case
    hidden, logits = units(recording, layer).astype(float), recording.steps("agent", "logits").to_numpy()[:, 1]
    weight = np.linalg.lstsq(np.column_stack([hidden, np.ones(len(hidden))]), logits, rcond=None)[0][:-1]
    left, _, _ = np.linalg.svd(weight - weight.mean(1, keepdims=True))  # [unit, unit]: 4 that the softmax minds
    effect = []
    for vector in (left[:, 0], left[:, -1]):
        along = mnb.Direction(layer, "agent_1", tuple(vector), float(hidden.mean(0) @ vector), 1.0)
        effect.append(mnb.usage(agents, along, episodes=4, n_random_directions=2).of("steer").effect)
    assert effect[0] > 1e-2 and effect[1] < 1e-5

"""The network of one's own that the documentation shows, as a file that is imported."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.config import MODELS, NETWORKS, option
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.network import NetworkConfig
from marlnb.models.networks.configs.sequence import SequenceConfig
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.mlp import MLP
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import InputSpec
from marlnb.training.learners import build_learners
from marlnb.training.loop import Loop
from marlnb.training.train import train
from tests.models.conftest import make_spec

PAGE = Path(__file__).parents[2] / "docs" / "networks-and-sites.md"


@pytest.fixture(scope="module")
def own_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's own file, imported as a user would; forgotten afterwards."""
    section = PAGE.read_text().split("## Your own network")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    path = tmp_path_factory.mktemp("own") / "residual_of_the_docs.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield
    del sys.modules[path.stem], MODELS._members["residual"]


@pytest.mark.parametrize("share", ["true", "false"])
def test_it_is_a_model_like_any_other(own_model: None, share: str) -> None:
    experiment = Experiment.compose(
        "env=mpe/simple_spread", "model=residual", "model.width=8", f"model.share_parameters={share}"
    )
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment
    with experiment.env.build(1) as env:
        policy = build_learners(experiment, env.spec)["agent"].policy
    observation = torch.randn(4, 3, 18)
    with capture(policy, "*/actor/*") as activations:
        before = policy.act(observation, explore=False).logits
    stem, block = activations["agent/actor/stem"], activations["agent/actor/block"]
    assert torch.equal(activations["agent/actor/stream"], stem + block) and stem.shape == (4, 3, 8)
    with edited(policy, [Ablate("agent/actor/stream", agents=("agent_1",))]):
        after = policy.act(observation, explore=False).logits
    assert (after != before).flatten(2).any(-1).any(0).tolist() == [False, True, False]


def test_it_learns(own_model: None, tmp_path: Path) -> None:
    run = train(
        Experiment.compose(
            *("env=mpe/simple_spread", "algorithm=ippo", "model=sequence", "model.models=[residual,gru]"),
            *("algorithm.sequence_length=5", "n_envs=2", "rollout_steps=5", "frames=10", "threads=1"),
        ),
        tmp_path / "run",
        progress=False,
    )
    assert "agent/actor/residual/stream" in [site.name for site in run.policies()["agent"].sites()]
    assert run.metrics()["learning/agent/grad_norm_actor"].iloc[0] > 0


@dataclass(frozen=True)
class FlawedConfig(NetworkConfig):
    """Linear maps with one mistake; named by import path alone, so that no other test lists it."""

    flaw: str = option("", help="the mistake")

    @property
    def recurrent(self) -> bool:
        return self.flaw == "stateless"


FlawedConfig.name = "flawed"


@NETWORKS.register(FlawedConfig)
class Flawed(Network):
    count: Tensor

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: FlawedConfig) -> None:
        super().__init__()
        self.flaw, self.calls = config.flaw, 0
        self.n_agents, self.in_features = n_agents, inputs.features
        self.out_features = out_features + (self.flaw == "attribute")
        width = {"narrow": 1, "wide": out_features + 1}.get(self.flaw, out_features)
        self.stem = AgentLinear(n_agents, inputs.features, 6, shared=True)
        self.head = AgentLinear(n_agents, 6, width, shared=True)
        if self.flaw == "dead":
            self.unused = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))
        self.requires_grad_(self.flaw != "frozen")
        self.stem.requires_grad_(not self.flaw.startswith("frozen"))

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> Any:
        self.calls += 1
        self.count += 1
        if self.flaw == "inplace":
            x /= 2
        if self.flaw == "raises":
            raise RuntimeError("boom")
        self.last = self.head(self.stem(x) + 0 * torch.rand(6))
        y = self.last.detach() if self.flaw == "detached" else self.last
        if self.flaw == "mean":
            y = y.mean(-2, keepdim=True)
        if self.flaw == "reads others":
            y = y + y.roll(1, -2)
        if self.flaw == "three axes":
            y = y.view(len(x), *y.shape[-2:])
        state = y if self.flaw == "state" else None
        return y if self.flaw == "no tuple" else (y, state)

    def site_modules(self) -> list[SiteModule]:
        width = 7 if self.flaw == "units" else 6
        unused: list[SiteModule] = [("act", nn.Tanh(), 6, "hidden")] if self.flaw == "uncalled" else []
        return [*unused, ("stem", self.stem, width, "hidden"), ("head", self.head, self.head.out_features, "head")]


FLAWS = {
    "narrow": r"Flawed.forward must return \[batch, agent, parameter\] = \[7, 3, 5\]; got \[7, 3, 1\]",
    "wide": r"must return \[batch, agent, parameter\] = \[7, 3, 5\]; got \[7, 3, 6\]",
    "mean": r"must return \[batch, agent, parameter\] = \[7, 3, 5\]; got \[7, 1, 5\]",
    "attribute": r"Flawed.out_features must be 5, what it was built for; got 6",
    "inplace": r"changes its input in place",
    "no tuple": r"must return \(output, state\).*; got a tensor of shape \[7, 3, 5\]",
    "state": r"must return the state None as its second value; got a tensor of shape \[7, 3, 5\]",
    "stateless": r"recurrent_shape is None, but `recurrent` of FlawedConfig is True",
    "raises": r"forward failed on .* of shape \[7, 3, 18\]: RuntimeError: boom, in forward \(.*test_own_model.py",
    "units": r"site 'stem' .* = \[7, 3, 7\]; its AgentLinear returns \[7, 3, 6\]",
    "uncalled": r"site 'act' of `site_modules`: forward calls its Tanh never",
    "detached": r"its output has no gradient",
    "dead": r"does not depend on the parameters unused.weight, unused.bias",
    "frozen": r"it has no parameter that can be trained",
    "three axes": r"Flawed.sequence failed on inputs \[env, time, agent, feature\]: RuntimeError: shape",
    "reads others": r"depends on another agent's input, but Flawed.cross_agent is False.*set self.cross_agent = True",
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_mistake_in_it_is_an_error_when_it_is_built(flaw: str) -> None:
    with pytest.raises(ConfigError, match=FLAWS[flaw]):
        build_network(FlawedConfig(flaw=flaw), 3, InputSpec(((18,),)), 5)


def test_a_network_that_reads_other_agents_may_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    config = FlawedConfig(flaw="reads others", agent_id=True, precision="bfloat16")
    with pytest.raises(ConfigError, match=r"Flawed\.cross_agent is False"):
        build_network(config, 3, InputSpec(((18,),)), 5)
    assert not build_network(config, 1, InputSpec(((18,),)), 5).cross_agent
    monkeypatch.setattr(Flawed, "cross_agent", True)
    assert build_network(config, 3, InputSpec(((18,),)), 5).cross_agent


@dataclass(frozen=True)
class MemoryConfig(NetworkConfig):
    """A decaying memory, whose `sequence` may have one mistake."""

    mistake: str = option("", help="the mistake")

    @property
    def recurrent(self) -> bool:
        return True


MemoryConfig.name = "memory"


class Memory(Network):
    """Without a `sequence` of its own."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: MemoryConfig) -> None:
        super().__init__()
        self.mistake, self.recurrent_shape = config.mistake, (1, 6)
        self.n_agents, self.in_features, self.out_features = n_agents, inputs.features, out_features
        self.stem = AgentLinear(n_agents, inputs.features, 6, shared=True)
        self.head = AgentLinear(n_agents, 6, out_features, shared=True)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        entering = 0 if recurrent is None else recurrent.squeeze(-2)
        state = torch.tanh(0.8 * entering + self.stem(x))
        return self.head(state), state.unsqueeze(-2)

    def site_modules(self) -> list[SiteModule]:
        return [("stem", self.stem, 6, "hidden"), ("head", self.head, self.out_features, "head")]


class OwnSequence(Memory):
    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        recurrent = None if self.mistake == "start" else recurrent
        is_init = torch.zeros_like(is_init) if self.mistake == "begin" else is_init
        acting = None if self.mistake == "wait" else acting
        outputs, states = self.step_by_step(x, recurrent, is_init, acting)
        assert states is not None
        if self.mistake == "order":
            outputs = self.step_by_step(x.flip(1), recurrent, is_init, acting)[0].flip(1)
        return outputs, states[:, -1] if self.mistake == "last state" else states


NETWORKS.register(MemoryConfig)(lambda *args: (OwnSequence if args[-1].mistake else Memory)(*args))

MISTAKES = {
    "last state": r"the state after each step, .* = \[7, 3, 2, 1, 6\], .*; got a tensor of shape \[7, 2, 1, 6\]",
    "order": r"its outputs differ by .* from the zero state\.",
    "start": r"its outputs differ by .* from another state \(`recurrent`\)\.",
    "begin": r"its outputs differ by .* where episodes begin \(`is_init`\): the state is zero before these steps\.",
    "wait": r"its outputs differ by .* where agents wait \(`acting` is False\): their state stays unchanged\.",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_sequence_that_differs_from_its_steps_is_an_error(mistake: str) -> None:
    with pytest.raises(ConfigError, match=f"model 'memory': OwnSequence.sequence must return .*{MISTAKES[mistake]}"):
        build_network(MemoryConfig(mistake=mistake), 2, InputSpec(((4,),)), 3)


def test_a_recurrent_network_needs_no_sequence_of_its_own() -> None:
    """Its memory is kept from step to step, begins at zero in each episode and waits where its agent does."""
    network = build_network(MemoryConfig(), 2, InputSpec(((4,),)), 3)
    x, is_init = torch.rand(1, 3, 2, 4), torch.tensor([[False, True, False]])
    acting = torch.tensor([[[True, True], [True, True], [True, False]]])
    outputs, states = network.sequence(x, torch.rand(1, 2, 1, 6), is_init, acting)
    second, state = network(x[:, 1])
    third, after = network(x[:, 2], state)
    assert states is not None and after is not None and state is not None
    assert torch.equal(outputs[:, 1], second) and torch.equal(outputs[:, 2], third)
    assert torch.equal(states[:, 2, 0], after[:, 0]) and torch.equal(states[:, 2, 1], state[:, 1])


@pytest.mark.parametrize("algorithm", ["ippo", "iql"])
def test_a_frozen_layer_stays_as_it_is(tmp_path: Path, algorithm: str) -> None:
    """It is saved with the other layers, which learn."""
    off_policy = ["algorithm.learning_starts=16", "algorithm.updates=1"] if algorithm == "iql" else []
    experiment = Experiment.compose(
        *("env=mpe/simple_spread", f"algorithm={algorithm}", "tuned=false", "n_envs=2", "rollout_steps=16"),
        *("frames=64", "threads=1", "model=tests.models.test_own_model:FlawedConfig", "model.flaw=frozen_stem"),
        *off_policy,
    )
    run = train(experiment, tmp_path / "run", progress=False)
    before = build_learners(experiment, run.spec)["agent"].policy.state_dict()
    after = run.policies()["agent"].state_dict()
    assert {name for name in after if name.startswith("actor") and torch.equal(after[name], before[name])} == {
        "actor.network.stem.weight",
        "actor.network.stem.bias",
    }


def test_the_dry_run_leaves_the_network_and_random_numbers_as_they_were() -> None:
    torch.manual_seed(3)
    expected = FlawedConfig().build(3, InputSpec(((18,),)), 5)
    after = torch.rand(4)
    torch.manual_seed(3)
    network = build_network(FlawedConfig(), 3, InputSpec(((18,),)), 5)
    assert torch.equal(torch.rand(4), after)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, expected.state_dict()[name])
    assert network.calls == 0 and not hasattr(network, "last")


def test_each_part_of_a_policy_is_checked() -> None:
    """An actor, a critic of all agents with one forward pass, and a network within a sequence."""
    good, wide = FlawedConfig(), FlawedConfig(flaw="wide")
    env = make_spec()
    for actor, critic, centralised in ((wide, good, False), (good, wide, False), (good, wide, True)):
        with pytest.raises(ConfigError, match="forward must return"):
            ActorCritic(env.group("walker"), env, actor, critic, centralised=centralised)
    with pytest.raises(ConfigError, match="forward must return"):
        build_network(SequenceConfig(models=(wide, MLPConfig()), widths=(4,)), 3, InputSpec(((6,),)), 5)
    ActorCritic(env.group("walker"), env, good, good, centralised=True)


class Modes(nn.Module):
    """Batch normalisation and dropout, and a list of the modes that they were called in."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(n_features), nn.Dropout(0.5)
        self.calls: list[tuple[str, str]] = []

    def forward(self, x: Tensor) -> Tensor:
        mode = "training" if self.training else "eval"
        self.calls.append((mode, "gradient" if torch.is_grad_enabled() else "no gradient"))
        normalised: Tensor = self.norm(x.flatten(0, -2)).view_as(x)
        return self.dropout(normalised)  # type: ignore[no-any-return]


@pytest.fixture
def model_with_modes() -> Iterator[None]:
    @MODELS.register("modes")
    @dataclass(frozen=True)
    class ModesConfig(MLPConfig):
        """An MLP whose input passes through batch normalisation and dropout."""

    @NETWORKS.register(ModesConfig)
    class WithModes(MLP):
        def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: MLPConfig) -> None:
            super().__init__(n_agents, inputs, out_features, config)
            self.modes = Modes(inputs.features)

        def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
            return super().forward(self.modes(x), recurrent)

    yield
    del MODELS._members["modes"], NETWORKS._builders[ModesConfig]


@pytest.mark.parametrize(
    "algorithm",
    [("ippo",), ("iql", "algorithm.double=false"), ("iql", "algorithm.double=true"), ("isac", "critic=mlp")],
    ids=["ippo", "iql", "double", "isac"],
)
def test_only_gradient_steps_are_in_training_mode(model_with_modes: None, algorithm: tuple[str, ...]) -> None:
    """Not acting, even in one environment, whose single row cannot be normalised; not values; not targets.

    Targets are the target networks' values, of next actions that the actor chooses as it acts.
    """
    name, *options = algorithm
    options += [] if name == "ippo" else ["algorithm.learning_starts=0", "algorithm.updates=2"]
    experiment = Experiment.compose(
        *("env=mpe/simple", "model=modes", f"algorithm={name}", *options, "tuned=false"),
        *("n_envs=1", "rollout_steps=16", "frames=32", "compile=never"),
    )
    with experiment.env.build(1) as env:
        loop = Loop(experiment, env, torch.device("cpu"))
        loop.begin(0)
        for _ in range(2):
            loop.advance()
    learner = loop.learners["agent"]
    networks = [learner.policy, *([learner.targets] if isinstance(learner, OffPolicyLearner) else [])]
    modes = [module for network in networks for module in network.modules() if isinstance(module, Modes)]
    assert len(modes) == (1 if "critic=mlp" in options else 2) and all(module.calls for module in modes)
    calls = {call for module in modes for call in module.calls}
    assert calls == {("training", "gradient"), ("eval", "no gradient")}

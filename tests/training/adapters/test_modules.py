"""Plain modules: their sites are found by running them, one shared or one for each agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import marlnb as mnb
from marlnb.errors import ConfigError, EnvBuildError, ShapeError, SiteError
from marlnb.models.adapters.module_network import ModuleNetwork
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from tests.envs.sample_envs import Scripted

ENV = "mpe/simple_spread"


def chain(seed: int = 0, n_outputs: int = 5) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(18, 16), nn.ReLU(inplace=True), nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8), nn.Tanh()),
        nn.Linear(8, n_outputs),
    )  # fmt: skip


class Talking(nn.Module):
    """Agents that hear the mean of what all of them encode, or only its signs."""

    def __init__(self, signs: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.signs = signs
        self.encoder = nn.Linear(18, 8)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        code = self.encoder(x).tanh()
        mean = code.mean(-2, keepdim=True).expand_as(code)
        return self.head(torch.cat([code, mean.sign() if self.signs else mean], -1))


def test_a_shared_chain_has_marlnbs_names(tmp_path: Path) -> None:
    module = chain()
    agents = mnb.agents_from_module(module, ENV, path=tmp_path)
    policy = agents.by_group["agent"]
    assert [site.name for site in policy.sites()] == [f"agent/actor/{x}" for x in ("hidden_1", "hidden_2", "head")]
    assert not policy.cross_agent and agents.networks == {"agent": [0, 0, 0]}
    recording = mnb.record(agents, episodes=2, progress=False)
    seen = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    first = (seen @ module[0].weight.T + module[0].bias).relu()
    np.testing.assert_allclose(recording["agent/actor/hidden_1"].to_numpy(), first.detach(), atol=1e-5)
    np.testing.assert_allclose(recording.steps("agent", "logits").to_numpy(), module(seen).detach(), atol=1e-5)
    attribution = mnb.attribute(recording, group="agent", policies=agents.by_group, progress=False)
    assert np.abs(attribution.convergence_delta).max() < 0.05


@pytest.mark.parametrize("kind", [dict, nn.ModuleDict])
def test_one_module_an_agent(kind: type[Any], tmp_path: Path) -> None:
    modules = {f"agent_{index}": chain(index) for index in range(3)}
    modules["agent_2"] = modules["agent_0"]  # two share
    agents = mnb.agents_from_module({"agent": kind(modules)}, ENV, path=tmp_path)
    assert agents.networks == {"agent": [0, 1, 0]}
    policy = agents.by_group["agent"]
    seen = torch.randn(4, 3, 18)
    with capture(policy) as activations:
        logits, _ = policy.logits(seen)
    for index in range(3):
        own = modules[f"agent_{index}"]
        torch.testing.assert_close(logits[:, index], own(seen[:, index]))
        shown = activations[f"agent/actor/agent_{index}/hidden_2"]
        torch.testing.assert_close(shown[:, 0], own[:3](seen[:, index]).detach())
    with edited(policy, [Ablate("agent/actor/agent_2/hidden_1")]):
        changed = policy.logits(seen)[0]
    assert torch.equal(changed[:, :2], logits[:, :2]) and not torch.equal(changed[:, 2], logits[:, 2])


@pytest.mark.parametrize("signs", [False, True])
def test_agents_that_talk_are_known_by_changes_of_others(tmp_path: Path, signs: bool) -> None:
    """Signs have no gradient."""
    with torch.no_grad():  # as people do who only look
        policy = mnb.agents_from_module(Talking(signs), ENV, path=tmp_path).by_group["agent"]
    assert policy.cross_agent
    assert [site.name for site in policy.sites()] == ["agent/actor/encoder", "agent/actor/head"]


def test_bytes_of_other_agents_are_changed_too() -> None:
    class Bytes(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x / 255)  # type: ignore[no-any-return]

    for module, is_cross_agent in ((nn.Linear(18, 5), False), (Talking(), True)):
        assert ModuleNetwork(Bytes(module), 3, (18,), dtype=torch.uint8).cross_agent == is_cross_agent


def test_continuous_actions_and_a_critic(tmp_path: Path) -> None:
    from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig

    env = SimpleSpreadConfig(continuous_actions=True)
    with pytest.raises(ConfigError, match="tanh_normal"):
        mnb.agents_from_module(chain(n_outputs=10), env, path=tmp_path)
    with pytest.raises(ConfigError, match="valid: tanh_normal, normal, tanh, direct"):
        mnb.agents_from_module(chain(n_outputs=10), env, distribution="categorical", path=tmp_path)
    critic = chain(4, n_outputs=1)
    for kind, n_outputs in (("tanh_normal", 10), ("normal", 10), ("tanh", 5), ("direct", 5)):
        module = chain(n_outputs=n_outputs)
        agents = mnb.agents_from_module(
            module, env, distribution=kind, critics={"agent": critic}, path=tmp_path  # type: ignore[arg-type]
        )  # fmt: skip
        policy, seen = agents.by_group["agent"], torch.randn(4, 3, 18)
        action = policy.act(seen, explore=False).action
        out = module(seen)[..., :5]
        expected = (out.tanh() + 1) / 2 if "tanh" in kind else out.clamp(0, 1)
        torch.testing.assert_close(action, expected.detach())
        torch.testing.assert_close(policy.value({"agent": seen})[0], critic(seen)[..., 0])


def test_what_cannot_be_taken(tmp_path: Path) -> None:
    class Bare(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[..., :5]

    with pytest.raises(SiteError, match="no submodule of Flat"):
        mnb.agents_from_module(Flat(), ENV, path=tmp_path)
    with pytest.raises(ShapeError, match="cannot be called on observations"):
        mnb.agents_from_module(nn.Linear(7, 5), ENV, path=tmp_path)
    with pytest.raises(ConfigError, match=r"gives \[3, 4\]"):
        mnb.agents_from_module(chain(n_outputs=4), ENV, path=tmp_path)
    with pytest.raises(ConfigError, match="expected agents of 'agent'"):
        mnb.agents_from_module({"agent": {"agent_0": chain()}}, ENV, path=tmp_path)
    with pytest.raises(ConfigError, match="modules must be a module, or modules by group; got str"):
        mnb.agents_from_module("policy.pt", ENV, path=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be an EnvConfig"):
        mnb.agents_from_module(chain(), 3, path=tmp_path)
    assert mnb.agents_from_module(Bare(), ENV, path=tmp_path).by_group["agent"].sites()[0].kind == "head"


@pytest.mark.parametrize("values", [{"agents": "greedy"}, {"agents": nn.Linear(18, 1)}, {"agents": (1, 8)}])
def test_options_by_group_name_groups(values: dict[str, Any], tmp_path: Path) -> None:
    option = {str: "distribution", nn.Linear: "critics", tuple: "recurrent_shape"}[type(values["agents"])]
    with pytest.raises(ConfigError, match=f"{option}: no group 'agents' of {ENV}; did you mean 'agent'"):
        mnb.agents_from_module(chain(), ENV, path=tmp_path, **{option: values})  # type: ignore[arg-type]


def test_critics_may_be_a_module_dict_but_not_one_module(tmp_path: Path) -> None:
    critic = chain(4, n_outputs=1)
    agents = mnb.agents_from_module(chain(), ENV, critics=nn.ModuleDict({"agent": critic}), path=tmp_path)
    seen = torch.randn(4, 3, 18)
    torch.testing.assert_close(agents.by_group["agent"].value({"agent": seen})[0], critic(seen)[..., 0])
    with pytest.raises(ConfigError, match=r"critics must be \{group: module\}; got Sequential"):
        mnb.agents_from_module(chain(), ENV, critics=critic, path=tmp_path)  # type: ignore[arg-type]


class Remembers(nn.Module):
    """Keeps a state of its own, hands it back, or runs along the batch as if it were time."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.cell, self.rnn, self.head = how, nn.GRUCell(18, 8), nn.GRU(18, 8), nn.Linear(8, 5)
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.how == "rows":
            return self.head(self.rnn(x)[0])
        state = self.cell(x.flatten(0, 1), self.state)
        if self.how == "keeps":
            self.state = state.detach()
        logits = self.head(state).unflatten(0, x.shape[:2])
        return (logits, state) if self.how == "returns" else logits


@pytest.mark.parametrize("how", ["keeps", "returns", "rows"])
def test_what_remembers_is_refused(how: str, tmp_path: Path) -> None:
    with pytest.raises(
        (ConfigError, ShapeError), match=r"(internal state|recurrent).*takes its state as an argument.*recurrent_shape="
    ):
        mnb.agents_from_module(Remembers(how), ENV, path=tmp_path)


class Flat(nn.Module):
    """Agents folded into the batch: nothing inside has an agent axis."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(18, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def test_an_environment_class_keeps_its_own_first_arguments(tmp_path: Path) -> None:
    class Sized(Scripted):
        def __init__(self, size: int = 5, render_mode: str | None = None) -> None:
            assert (size, render_mode) == (5, None)
            super().__init__()

    class Strict(Sized):
        def __init__(self, size: int = 1, walls: int = 1) -> None:
            if size < 2:
                raise ValueError("size must be at least 2")
            super().__init__(size)

    agents = mnb.agents_from_module(nn.Linear(3, 3), Sized, path=tmp_path)
    assert agents.spec.agents == ("a_0", "a_1", "a_2")
    with pytest.raises(EnvBuildError, match="size must be at least 2"):
        mnb.agents_from_module(nn.Linear(3, 3), Strict, path=tmp_path)


def test_a_function_of_environments_has_arguments_of_any_names(tmp_path: Path) -> None:
    def scripted(n: int, where: str) -> Scripted:
        assert (n, where) in ((1, "cpu"), (2, "cpu"))
        return Scripted()

    agents = mnb.agents_from_module(nn.Linear(3, 3), scripted, path=tmp_path)
    with agents.build_env(2) as env:
        assert env.n_envs == 2 and env.spec.agents == ("a_0", "a_1", "a_2")

"""torchrl's policies: the network and the distribution between observation and action, found and equal to torchrl's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import (
    Delta,
    IndependentNormal,
    MaskedCategorical,
    MultiAgentMLP,
    ProbabilisticActor,
    QValueModule,
    TanhDelta,
    TanhNormal,
)
from torchrl.objectives import DiscreteSACLoss, ValueEstimators

import marlnb as mnb
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import ConfigError
from marlnb.models.hooks.edits import Ablate

pytestmark = pytest.mark.filterwarnings("ignore")  # torchrl's own
DISCRETE, CONTINUOUS = SimpleSpreadConfig(), SimpleSpreadConfig(continuous_actions=True)


def mlp(n_outputs: int, *, shared: bool = True) -> MultiAgentMLP:
    torch.manual_seed(3)
    return MultiAgentMLP(
        n_agent_inputs=18,
        n_agent_outputs=n_outputs,
        n_agents=3,
        centralised=False,
        share_params=shared,
        num_cells=[16, 16],
    )


def normal_actor(kind: Any, *, in_one: bool = False, **options: Any) -> ProbabilisticActor:
    """As torchrl's tutorials write it: the extractor in one Sequential with the network, or a module of its own."""
    where = [("agent", "loc"), ("agent", "scale")]
    if in_one:
        network: Any = TensorDictModule(
            nn.Sequential(mlp(10), NormalParamExtractor()), in_keys=[("agent", "observation")], out_keys=where
        )
    else:
        network = TensorDictSequential(
            TensorDictModule(mlp(10), in_keys=[("agent", "observation")], out_keys=[("agent", "logits")]),
            TensorDictModule(NormalParamExtractor(), in_keys=[("agent", "logits")], out_keys=where),
        )
    return ProbabilisticActor(
        network,
        in_keys=where,
        out_keys=[("agent", "action")],
        distribution_class=kind,
        distribution_kwargs=options,
        return_log_prob=True,
        log_prob_key=("agent", "log_prob"),
    )


def asked(policy: Any, seen: torch.Tensor, **more: torch.Tensor) -> TensorDict:
    entries = {"observation": seen, **more}
    data = TensorDict({"agent": TensorDict(entries, [len(seen), 3])}, [len(seen)])
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        return policy(data)


@pytest.fixture
def seen() -> torch.Tensor:
    return torch.randn(6, 3, 18, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("in_one", [False, True])
@pytest.mark.parametrize("kind", [TanhNormal, IndependentNormal])
def test_normals_have_torchrls_density(kind: Any, in_one: bool, seen: torch.Tensor, tmp_path: Path) -> None:
    low, high = torch.zeros(5), torch.ones(5)
    bounds = {"low": low, "high": high} if kind is TanhNormal else {}
    actor = normal_actor(kind, in_one=in_one, **bounds)
    policy = mnb.agents_from_torchrl(actor, CONTINUOUS, path=tmp_path).by_group["agent"]
    assert [site.name for site in policy.sites()] == [f"agent/actor/{x}" for x in ("hidden_1", "hidden_2", "head")]
    theirs_td = asked(actor, seen)
    chosen = policy.act(seen, explore=False)
    expected = theirs_td["agent", "action"].clamp(0, 1)
    torch.testing.assert_close(chosen.action, expected, atol=1e-5, rtol=0)
    theirs = kind(theirs_td["agent", "loc"], theirs_td["agent", "scale"], **bounds)
    drawn = theirs.sample()
    if kind is TanhNormal:
        drawn = drawn.clamp(0.01, 0.99)
    unit = 2 * drawn - 1
    stored = unit.atanh() if kind is TanhNormal else unit
    distribution = policy.distribution
    assert distribution is not None
    own = distribution.log_prob(policy.logits(seen)[0], stored)
    torch.testing.assert_close(own, theirs.log_prob(drawn).reshape(own.shape), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [Delta, TanhDelta])
def test_actions_without_chance(kind: Any, seen: torch.Tensor, tmp_path: Path) -> None:
    bounds = {"low": torch.zeros(5), "high": torch.ones(5)} if kind is TanhDelta else {}
    actor = ProbabilisticActor(
        TensorDictModule(mlp(5), in_keys=[("agent", "observation")], out_keys=[("agent", "param")]),
        in_keys={"param": ("agent", "param")},
        out_keys=[("agent", "action")],
        distribution_class=kind,
        distribution_kwargs=bounds,
    )
    policy = mnb.agents_from_torchrl(actor, CONTINUOUS, path=tmp_path).by_group["agent"]
    expected = asked(actor, seen)["agent", "action"]
    assert (expected < 0).any() == (kind is Delta)  # what lies outside the bounds is clipped, as the environment does
    for explore in (False, True):
        chosen = policy.act(seen, explore=explore)
        torch.testing.assert_close(chosen.action, expected.clamp(0, 1), atol=1e-5, rtol=0)
        assert (chosen.log_prob == 0).all()
    if kind is TanhDelta:
        outside = ProbabilisticActor(
            TensorDictModule(mlp(5), in_keys=[("agent", "observation")], out_keys=[("agent", "param")]),
            in_keys={"param": ("agent", "param")},
            out_keys=[("agent", "action")],
            distribution_class=kind,
        )
        with pytest.raises(ConfigError, match="bounded by low"):
            mnb.agents_from_torchrl(outside, CONTINUOUS, path=tmp_path)


def test_masked_choices(seen: torch.Tensor, tmp_path: Path) -> None:
    actor = ProbabilisticActor(
        TensorDictModule(mlp(5, shared=False), in_keys=[("agent", "observation")], out_keys=[("agent", "logits")]),
        in_keys={"logits": ("agent", "logits"), "mask": ("agent", "action_mask")},
        out_keys=[("agent", "action")],
        distribution_class=MaskedCategorical,
    )
    agents = mnb.agents_from_torchrl(actor, DISCRETE, path=tmp_path)
    assert agents.networks == {"agent": [0, 1, 2]}
    mask = torch.rand(6, 3, 5, generator=torch.Generator().manual_seed(2)) > 0.4
    mask[..., 0] = True
    theirs = asked(actor, seen, action_mask=mask)
    chosen = agents.by_group["agent"].act(seen, action_mask=mask, explore=False)
    assert torch.equal(chosen.action, theirs["agent", "action"])
    torch.testing.assert_close(agents.by_group["agent"].logits(seen)[0].detach(), theirs["agent", "logits"])


def test_q_values_are_acted_on_greedily(seen: torch.Tensor, tmp_path: Path) -> None:
    network = TensorDictModule(mlp(5), in_keys=[("agent", "observation")], out_keys=[("agent", "action_value")])
    values = QValueModule(
        action_space="categorical",
        action_value_key=("agent", "action_value"),
        out_keys=[("agent", "action"), ("agent", "action_value"), ("agent", "chosen_action_value")],
    )
    both = TensorDictSequential(network, values)
    policy = mnb.agents_from_torchrl(both, DISCRETE, path=tmp_path).by_group["agent"]
    theirs = asked(both, seen)
    for explore in (False, True):
        chosen = policy.act(seen, explore=explore)
        assert torch.equal(chosen.action, theirs["agent", "action"].reshape(6, 3))
        assert (chosen.log_prob == 0).all()


def test_an_environment_of_torchrls_own(tmp_path: Path) -> None:
    """A torchrl EnvBase as the environment: recorded rows are what the network makes of the recorded observations."""
    actor = normal_actor(TanhNormal, low=torch.zeros(5), high=torch.ones(5))
    env = mnb.as_torchrl(CONTINUOUS.build(1))
    with pytest.raises(ConfigError, match="has the batch size"):
        mnb.agents_from_torchrl(actor, env, path=tmp_path)
    env.close()

    def make(n_envs: int, device: str) -> Any:
        return mnb.as_torchrl(CONTINUOUS.build(n_envs, device))

    agents = mnb.agents_from_torchrl(actor, make, path=tmp_path)
    recording = mnb.record(agents, episodes=2, progress=False, values=False)
    observation = torch.from_numpy(recording.steps("agent", "observation").to_numpy())
    expected = mlp(10)(observation)
    head = torch.from_numpy(recording["agent/actor/head"].to_numpy())
    torch.testing.assert_close(head, expected.detach(), atol=1e-5, rtol=0)
    assert recording.source == "torchrl"


def test_a_whole_evaluation_with_an_edit(tmp_path: Path) -> None:
    actor = ProbabilisticActor(
        TensorDictModule(mlp(5), in_keys=[("agent", "observation")], out_keys=[("agent", "logits")]),
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Categorical,
    )
    agents = mnb.agents_from_torchrl(actor, DISCRETE, path=tmp_path)
    plain = mnb.evaluate(agents, episodes=4, seed=5)
    silent = mnb.evaluate(agents, episodes=4, seed=5, edits=[Ablate("agent/actor/hidden_2")])
    assert plain.return_mean != silent.return_mean


def test_refusals_say_what_is_valid(tmp_path: Path) -> None:
    discrete = ProbabilisticActor(
        TensorDictModule(mlp(5), in_keys=[("agent", "observation")], out_keys=[("agent", "logits")]),
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Bernoulli,
    )
    with pytest.raises(ConfigError, match=r"Bernoulli.*valid: Categorical"):
        mnb.agents_from_torchrl(discrete, DISCRETE, path=tmp_path)
    with pytest.raises(ConfigError, match="writes 'agents/action'"):
        mnb.agents_from_torchrl(discrete, DISCRETE, group_map={"agent": "agents"}, path=tmp_path)
    hidden = ProbabilisticActor(
        TensorDictModule(nn.LSTM(18, 5), in_keys=[("agent", "observation")], out_keys=[("agent", "logits"), "h"]),
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Categorical,
    )
    with pytest.raises(ConfigError, match=r"LSTM.*a recurrent policy takes its state"):
        mnb.agents_from_torchrl(hidden, DISCRETE, path=tmp_path)
    bounded = normal_actor(TanhNormal, low=-torch.ones(5), high=torch.ones(5))
    with pytest.raises(ConfigError, match="bounded by low"):
        mnb.agents_from_torchrl(bounded, CONTINUOUS, path=tmp_path)
    with pytest.raises(ConfigError, match="agents_from_module"):
        mnb.agents_from_torchrl(mlp(5), DISCRETE, path=tmp_path)


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_a_critic_of_every_action_says_what_torchrls_loss_makes_of_it(alpha: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = {"n_agents": 3, "centralized": False, "share_params": False, "depth": 1, "num_cells": 8}
    actor = ProbabilisticActor(
        TensorDictModule(MultiAgentMLP(18, 5, **options), [("agent", "observation")], [("agent", "logits")]),
        spec=None,
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Categorical,
    )
    q = TensorDictModule(MultiAgentMLP(18, 5, **options), [("agent", "observation")], [("agent", "action_value")])
    made = mnb.agents_from_torchrl(
        copy.deepcopy(actor), "mpe/simple_spread", critic=copy.deepcopy(q), alpha=alpha, path=tmp_path
    )
    given = TensorDict.from_module(q).data.clone()
    loss = DiscreteSACLoss(
        actor,
        q,
        action_space="categorical",
        num_actions=5,
        num_qvalue_nets=1,
        alpha_init=alpha or 1e-9,
        fixed_alpha=True,
    )
    loss.set_keys(
        action_value=("agent", "action_value"),
        action=("agent", "action"),
        reward=("agent", "reward"),
        done=("agent", "done"),
        terminated=("agent", "terminated"),
    )
    loss.make_value_estimator(ValueEstimators.TD0, gamma=1.0)
    for params in (loss.qvalue_network_params, loss.target_qvalue_network_params):  # the loss draws weights of its own
        params.data.copy_(given.unsqueeze(0))
    seen = torch.randn(6, 3, 18)
    after: dict[str, Any] = {"observation": seen, "reward": torch.zeros(6, 3, 1)}
    after |= dict.fromkeys(("done", "terminated"), torch.zeros(6, 3, 1, dtype=torch.bool))
    step = TensorDict({"agent": {"observation": seen}, "next": {"agent": after}}, batch_size=[6])
    expected = loss._compute_target(step)
    policy = made.by_group["agent"]
    values, _ = policy.value({"agent": seen})
    torch.testing.assert_close(values, expected, atol=1e-6, rtol=1e-5)
    assert "agent/critic/head" in {site.name for site in policy.sites()}

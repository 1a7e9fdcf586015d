"""Agents of one group with networks of different kinds: built, trained, recorded, edited, explained."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.decoding.decode import decode
from marlnb.config import ModelConfig
from marlnb.errors import AnalysisError, ConfigError, ShapeError
from marlnb.experiment import Experiment
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.by_agent import ByAgent, by_agent
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig, LSTMConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.recording.capture.recorder import record
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, InputSpec, ObservationSpec
from marlnb.training.learners import build_learners
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

BOB = GroupSpec("bob", ("bob_0", "bob_1", "bob_2", "bob_3"), ObservationSpec((6,)), ActionSpec("discrete", (5,)))
VECTOR = InputSpec(((6,),))
SMALL = MLPConfig(hidden=(5,))
HELD = GRUConfig(hidden=(), recurrent_size=3)
LONG = LSTMConfig(hidden=(), recurrent_size=4)


def mixed(default: ModelConfig = SMALL, **named: ModelConfig) -> ByAgent:
    torch.manual_seed(3)
    network = by_agent(BOB, default, named).build(4, VECTOR, 2)
    assert isinstance(network, ByAgent)
    return network


def test_each_agent_is_as_its_own_network_alone() -> None:
    network = mixed(bob_1=HELD, bob_3=LONG)
    assert network.members == [[0, 2], [1], [3]] and network.recurrent_shape == (2, 4)
    x, state = torch.randn(7, 4, 6), torch.zeros(7, 4, 2, 4)
    state[:, 1, 0, :3], state[:, 3] = torch.randn(7, 3), torch.randn(7, 2, 4)
    output, leaving = network(x, state)
    mlp, gru, lstm = network.networks
    assert leaving is not None
    torch.testing.assert_close(output[:, [0, 2]], mlp(x[:, [0, 2]])[0])
    expected, after = gru(x[:, 1:2], state[:, 1:2, :1, :3])
    torch.testing.assert_close(output[:, 1:2], expected)
    torch.testing.assert_close(leaving[:, 1:2, :1, :3], after)
    expected, after = lstm(x[:, 3:], state[:, 3:])
    torch.testing.assert_close(output[:, 3:], expected)
    torch.testing.assert_close(leaving[:, 3:], after)
    assert (leaving[:, [0, 2]] == 0).all() and (leaving[:, 1, 1] == 0).all() and (leaving[:, 1, 0, 3] == 0).all()


def test_agents_of_equal_options_share_weights_where_those_say_so() -> None:
    apart = MLPConfig(hidden=(5,), share_parameters=False)
    network = mixed(bob_0=HELD, bob_1=apart, bob_2=apart)
    assert network.members == [[0], [1, 2], [3]]
    assert network.networks[1].head.weight.shape == (2, 2, 5)  # type: ignore[union-attr]
    assert mixed(bob_0=HELD, bob_2=HELD).networks[0].head.weight.shape == (2, 3)  # type: ignore[union-attr]
    assert by_agent(BOB, SMALL, {"bob": HELD, "rob_0": HELD}) is SMALL
    assert by_agent(BOB, SMALL, dict.fromkeys(BOB.agents, HELD)) == HELD
    assert mixed(bob_0=GNNConfig(rounds=(4,)), bob_1=GNNConfig(rounds=(4,))).cross_agent


def test_a_sequence_equals_its_steps() -> None:
    network = mixed(bob_1=HELD, bob_3=LONG)
    x, is_init, acting = torch.randn(4, 9, 4, 6), torch.rand(4, 9) < 0.3, torch.rand(4, 9, 4) < 0.6
    outputs, states = network.sequence(x, None, is_init, acting)
    state = torch.zeros(4, 4, 2, 4)
    for t in range(9):
        entering = torch.where(is_init[:, t, None, None, None], 0.0, state)
        output, leaving = network(x[:, t], entering)
        state = torch.where(acting[:, t, :, None, None], leaving, entering)
        assert states is not None
        torch.testing.assert_close(states[:, t], state)
        torch.testing.assert_close(outputs[:, t][acting[:, t]], output[acting[:, t]])


def make_policy() -> tuple[ActorCritic, Tensor]:
    torch.manual_seed(3)
    model = by_agent(BOB, SMALL, {"bob_1": HELD})
    return ActorCritic(BOB, EnvSpec("test", (BOB,)), model, SMALL, centralised=True), torch.randn(7, 4, 6)


def test_every_agent_has_its_own_sites() -> None:
    policy, observation = make_policy()
    assert [(site.name, site.n_agents, site.n_units) for site in policy.sites()] == [
        ("bob/actor/bob_0/hidden_1", 1, 5),
        ("bob/actor/bob_0/head", 1, 5),
        ("bob/actor/bob_1/gru", 1, 3),
        ("bob/actor/bob_1/head", 1, 5),
        ("bob/actor/bob_2/hidden_1", 1, 5),
        ("bob/actor/bob_2/head", 1, 5),
        ("bob/actor/bob_3/hidden_1", 1, 5),
        ("bob/actor/bob_3/head", 1, 5),
        ("bob/critic/hidden_1", 4, 5),
        ("bob/critic/head", 4, 4),
    ]
    with capture(policy, "*/actor/*") as activations:
        logits = policy.act(observation).logits
    layer = policy.actor.network.networks[0].hidden[0]  # type: ignore[index, union-attr]
    for agent in (0, 2, 3):
        activation = activations[f"bob/actor/bob_{agent}/hidden_1"]
        torch.testing.assert_close(activation[:, 0], torch.tanh(observation[:, agent] @ layer.linear.weight.T))  # type: ignore[union-attr, operator]
    for agent in range(4):
        assert torch.equal(activations[f"bob/actor/bob_{agent}/head"][:, 0], logits[:, agent])
    head = policy.actor.network.networks[0].head.weight.detach()  # type: ignore[index, union-attr]
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(5), atol=1e-8, rtol=1e-4)  # scaled once, not thrice


@pytest.mark.parametrize(
    ("edit", "agents"),
    [
        (Ablate("bob/actor/bob_2/hidden_1", value=0.7), [2]),
        (Ablate("bob/actor/*/hidden_1", agents=("bob_0", 3), value=0.7), [0, 3]),
        (Ablate("bob/actor/*/hidden_1", value=0.7), [0, 2, 3]),
        (Ablate("bob/actor/bob_1/gru", units=(1,), value=0.7), [1]),
    ],
)
def test_an_edit_touches_its_agents_alone(edit: Ablate, agents: list[int]) -> None:
    policy, observation = make_policy()
    before = policy.act(observation, explore=False).logits
    with edited(policy, [edit]), capture(policy, edit.site) as activations:
        after = policy.act(observation, explore=False).logits
    assert (after != before).flatten(2).any(-1).any(0).nonzero()[:, 0].tolist() == agents
    for agent in agents:
        units = slice(None) if edit.units is None else list(edit.units)
        assert all((x[..., units] == 0.7).all() for name, x in activations.items() if f"bob_{agent}/" in name)


def test_an_edit_of_another_agents_site_is_refused() -> None:
    policy, _ = make_policy()
    with pytest.raises(Exception, match="matches no agent"), edited(policy, [Ablate("*/bob_2/*", agents=("bob_0",))]):
        pass
    with pytest.raises(ShapeError, match="valid: 0 to 3"), edited(policy, [Ablate("*/bob_2/*", agents=(4,))]):
        pass


TRAINED = (
    *("env=mpe/simple_spread", "algorithm=mappo", "algorithm.sequence_length=5", "algorithm.epochs=1"),
    *("model.hidden=[8]", "models.agent_1=gru", "models.agent_1.recurrent_size=5", "models.agent_2.hidden=[6]"),
    *("n_envs=4", "rollout_steps=25", "frames=200", "threads=1"),
)


def test_an_agents_options_are_composed_on_its_groups() -> None:
    experiment = Experiment.compose(*TRAINED, "models.agent=mlp", "models.agent.activation=relu", "critics.agent_0=gru")
    assert experiment.models["agent_2"] == MLPConfig(hidden=(6,), activation="relu")
    assert experiment.models["agent_1"] == GRUConfig(recurrent_size=5)
    assert Experiment.from_json(json.loads(json.dumps(experiment.to_json()))) == experiment


def test_names_that_are_neither_groups_nor_agents_are_refused() -> None:
    experiment = Experiment.compose(*TRAINED, "models.agent_7=gru")
    with experiment.env.build(1) as env:
        with pytest.raises(ConfigError, match=r"'agent_7'.* agent, agent_0, agent_1, agent_2"):
            build_learners(experiment, env.spec)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained twice as long in one go and in halves, which must not differ."""
    folder = tmp_path_factory.mktemp("by_agent")
    experiment = Experiment.compose(*TRAINED, "critics.agent_0.hidden=[7]")
    with Trainer(experiment, Run.create(folder / "whole", experiment)) as trainer:
        _ = [next(trainer) for _ in range(2)]
    with Trainer(experiment, Run.create(folder / "halves", experiment)) as trainer:
        next(trainer)
    with Trainer.resume(Run.open(folder / "halves")) as trainer:
        next(trainer)
        weights = trainer.policies["agent"].state_dict()
    run = Run.open(folder / "whole")
    expected = run.policies()["agent"].state_dict()
    assert weights.keys() == expected.keys() and all(torch.equal(weights[key], expected[key]) for key in weights)
    return run


def test_a_recording_holds_each_agents_own_units(run: Run) -> None:
    with record(run, sites="*", episodes=12, name="all", progress=False) as recording:
        assert recording["agent/actor/agent_1/gru"].shape == (len(recording), 1, 5)
        assert recording["agent/actor/agent_1/gru"].labels["agent"] == ["agent_1"]
        assert recording["agent/critic/agent_0/hidden_1"].labels["agent"] == ["agent_0"]
        seen = recording.steps("agent", "observation").to_torch()
        policy = run.policies()["agent"]
        entering = recording.recurrent("agent").to_torch()
        assert entering.shape[1:] == (3, 1, 5)
        with torch.no_grad(), capture(policy, "*") as activations:
            logits = policy.actor.step(seen, entering)[0]  # type: ignore[attr-defined]
            value, _ = policy.value({"agent": seen})
        for site, expected in activations.items():
            agent = site.split("/")[2]
            np.testing.assert_allclose(recording[site].sel(agent=agent).to_numpy(), expected[:, 0].numpy(), atol=1e-5)
        np.testing.assert_allclose(recording.steps("agent", "logits").to_numpy(), logits.numpy(), atol=1e-5)
        np.testing.assert_allclose(recording.steps("agent", "value").to_numpy(), value.numpy(), atol=1e-4)
        assert recording.file["agents/policy_index"][:].tolist() == [0, 1, 2]


def test_only_the_sites_of_recorded_agents_are_kept(run: Run) -> None:
    with record(run, sites="*", episodes=2, agents=["agent_0", "agent_2"], name="two", progress=False) as recording:
        assert {site.split("/")[2] for site in recording.sites} == {"agent_0", "agent_2"}
        assert recording["agent/actor/agent_2/hidden_1"].shape[1:] == (1, 6)
    with pytest.raises(Exception, match="none of the recorded agents"):
        record(run, episodes=2, agents="agent_0", sites="*/agent_1/*", name="none", progress=False)


def test_what_an_agents_units_tell_is_compared_with_the_same_network_untrained(run: Run) -> None:
    with record(run, episodes=12, name="decoded", progress=False) as recording:
        label = recording.steps("agent", "observation").to_numpy()[:, 1, 0]
        result = decode(recording, site="agent/actor/agent_1/gru", label=label, kind="regression", n_shuffles=2)
        assert [score.agent for score in result.scores] == ["agent_1"]
        assert result.scores[0].untrained is not None and np.isfinite(result.scores[0].untrained)
        with pytest.raises(AnalysisError, match=r"'agent_0'.*agent_1"):
            decode(recording, site="agent/actor/agent_1/gru", label=label, agent="agent_0", kind="regression")


def test_outputs_are_attributed_agent_by_agent(run: Run) -> None:
    with record(run, episodes=2, name="explained", progress=False) as recording:
        own = attribute(recording, group="agent", n_steps=100)
        assert float(np.nanmax(np.abs(own.values.sum(-1) - (own.score - own.baseline_score)))) < 1e-3
        other = attribute(recording, group="agent", sources="all").influence()
        for agent in ("agent_0", "agent_1", "agent_2"):
            assert other.loc[agent, agent] > 0
            assert (other.loc[agent].drop(agent) == 0).all()

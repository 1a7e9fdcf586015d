"""What each planted network computes, against formulas written out here; over the whole grid."""

import json

import numpy as np
import pytest

from marlnb.errors import ConfigError, UnknownNameError
from marlnb.groundtruth import AnswerKey, PublicTask, circuit_names, planted, spillover
from marlnb.groundtruth.scoring.faithfulness import RowReplay
from tests.groundtruth.conftest import GRID

GRU_BEND = 0.6
"""Logits that tanh bends a code of several calls at once; a signal's are 4."""
PAIRS = [(network, shared) for network in ("mlp", "gru") for shared in (True, False)]


def node_of(subject, agent, suffix):
    return next(n for n in subject.key.nodes if n.agent == agent and n.site.endswith(suffix))


def values(recording, node):
    """`[row, unit of the node]`."""
    return recording[node.site].sel(agent=node.agent).to_numpy()[:, list(node.units)]


def observed(recording, agent, feature):
    group = agent.rpartition("_")[0]
    column = recording.feature_names(group).index(feature)
    return recording.steps(group, "observation").sel(agent=agent).to_numpy()[:, column]


def logits(recording, agent):
    return recording.steps(agent.rpartition("_")[0], "logits").sel(agent=agent).to_numpy()


def ends(network):
    return "hidden_2" if network == "mlp" else "gru"


def without_minor(recording, subject, agent):
    """The logits less what the units of small readout add."""
    left = logits(recording, agent).astype(float)
    for minor in subject.key.minor:
        if minor.agent == agent:
            for output, weights in minor.readout:
                left[:, output] -= values(recording, minor) @ np.array(weights)
    return left


def source_of(subject, node):
    """The features that a first-layer node's first unit reads with a weight of 1.5 or more."""
    group = node.agent.rpartition("_")[0]
    network = subject.policies[group].actor.network
    network = getattr(network, "inner", network)
    weight = network.hidden[0].linear.weight.detach()
    k = subject.agents.spec.group(group).agents.index(node.agent)
    row = (weight if weight.dim() == 2 else weight[k])[node.units[0]]
    names = subject.agents.spec.group(group).observation.names
    return {name: float(w) for name, w in zip(names, row.tolist()) if abs(w) >= 1.5}


@pytest.mark.parametrize(("network", "shared"), PAIRS)
def test_concept_neuron_is_relu_of_twice_the_feature_and_adds_six_times_its_relu(planted_instance, network, shared):
    subject, recording = planted_instance("concept_neuron", network, shared)
    (agent,) = subject.key.agents
    first, second = node_of(subject, agent, "hidden_1"), node_of(subject, agent, ends(network))
    (feature,) = source_of(subject, first)
    x = np.maximum(observed(recording, agent, feature).astype(float), 0)
    assert x.max() > 0.2
    np.testing.assert_allclose(values(recording, first)[:, 0], 2 * x, atol=1e-6)
    d = 2 * x if network == "mlp" else np.tanh(x / 2)
    np.testing.assert_allclose(values(recording, second)[:, 0], d, atol=1e-5)
    ((output, _),) = second.readout
    expected = 6 * x if network == "mlp" else 12 * np.tanh(x / 2)
    np.testing.assert_allclose(without_minor(recording, subject, agent)[:, output], expected, atol=1e-4)
    for other in {"agent_0", "agent_1", "agent_2"} - {agent}:
        np.testing.assert_allclose(without_minor(recording, subject, other)[:, output], 0, atol=1e-5)


@pytest.mark.parametrize(("network", "shared"), PAIRS)
def test_decoy_steers_by_one_landmark_alone(planted_instance, network, shared):
    subject, recording = planted_instance("decoy", network, shared)
    (agent,) = subject.key.agents
    (feature, _) = (*source_of(subject, node_of(subject, agent, "hidden_1")), None)
    x = observed(recording, agent, feature).astype(float)
    more, less = (2, 1) if feature.endswith("x") else (4, 3)
    left = without_minor(recording, subject, agent)
    size = (lambda v: 6 * v) if network == "mlp" else (lambda v: 12 * np.tanh(v / 2))
    np.testing.assert_allclose(left[:, more], size(np.maximum(x, 0)), atol=1e-4)
    np.testing.assert_allclose(left[:, less], size(np.maximum(-x, 0)), atol=1e-4)
    y = recording.label("decoy_concept").sel(agent=agent).to_numpy()
    assert np.corrcoef(x, y)[0, 1] > 0.1


@pytest.mark.parametrize(("network", "shared"), PAIRS)
def test_partner_goal_is_a_plane_that_no_unit_holds(planted_instance, network, shared):
    subject, recording = planted_instance("partner_goal", network, shared)
    (agent,) = subject.key.agents
    node = node_of(subject, agent, ends(network))
    basis = np.array(node.basis)
    np.testing.assert_allclose(basis @ basis.T, np.eye(2), atol=1e-12)
    assert (basis**2).sum(0).max() < 0.5
    goal = recording.label("partner_goal").to_numpy()
    plane = recording[node.site].sel(agent=agent).to_numpy().astype(float) @ basis.T
    size = 0.8 if network == "gru" else 1.0
    np.testing.assert_allclose(plane[goal == 0], 0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(plane[goal > 0], axis=1), size * np.sqrt(2 / 3), atol=1e-4)
    left = without_minor(recording, subject, agent)
    for g, (output, _) in enumerate(_in_order_of_goals(node, left, goal)):
        expected = np.where(goal == 0, 0, np.where(goal == g + 1, 4.0, -2.0))
        np.testing.assert_allclose(left[:, output], expected, atol=1e-3)


def _in_order_of_goals(node, left, goal):
    return sorted(node.readout, key=lambda pair: next(g for g in (1, 2, 3) if left[goal == g, pair[0]].mean() > 1))


@pytest.mark.parametrize(("network", "shared"), PAIRS)
def test_role_switches_at_the_alarm_and_holds(planted_instance, network, shared):
    subject, recording = planted_instance("role_switch", network, shared)
    (agent,) = subject.key.agents
    node = node_of(subject, agent, ends(network))
    role = recording.label("role").to_numpy()
    full = np.tanh(4.0) if network == "gru" else 1.0
    np.testing.assert_allclose(values(recording, node)[:, 0], full * role, atol=1e-4)
    (alarmed,) = {n.units for n in subject.key.nodes if n.site.endswith("hidden_1")}
    flash = recording["agent/actor/hidden_1"].sel(agent=agent).to_numpy()[:, list(alarmed)][:, 0]
    first = np.concatenate(([True], np.diff(role) > 0)) & (role > 0)
    np.testing.assert_array_equal(flash, role if network == "mlp" else first)
    left = without_minor(recording, subject, agent)
    (minus,) = [o for o, w in node.readout if w[0] < 0]
    (plus,) = [o for o, w in node.readout if w[0] > 0]
    np.testing.assert_allclose(left[:, plus], 8 * full * role - 4, atol=1e-3)
    np.testing.assert_allclose(left[:, minus], 4 - 8 * full * role, atol=1e-3)


@pytest.mark.parametrize(("network", "shared"), PAIRS)
def test_message_code_sends_the_listener_to_the_goal(planted_instance, network, shared):
    subject, recording = planted_instance("message_code", network, shared)
    goal = recording.label("goal").to_numpy()
    spoken = recording.steps("speaker", "action").to_numpy()[:, 0]
    np.testing.assert_array_equal(spoken, np.array(subject.key.code)[goal])
    assert sorted(subject.key.code) == [0, 1, 2]
    t, distance = recording.rows["t"].to_numpy(), recording.label("goal_distance").to_numpy()
    assert distance[t == 15].mean() < 0.45 * distance[t == 0].mean()
    np.testing.assert_array_equal(recording.steps("listener", "action").to_numpy()[t == 0, 0], 0)


@pytest.mark.parametrize(("network", "shared"), PAIRS)
def test_sparse_code_adds_four_at_a_signal_and_nothing_at_other_calls(planted_instance, network, shared):
    subject, recording = planted_instance("sparse_code", network, shared)
    (agent,) = subject.key.agents
    node = node_of(subject, agent, ends(network))
    written, basis = np.array(node.written), np.array(node.basis)
    np.testing.assert_allclose(np.linalg.norm(written, axis=1), 1.0, atol=1e-12)
    assert np.abs(written).max() < 0.8, "no unit is a signal"
    heard = [np.array(d.basis[0]) for d in subject.key.decoys if d.agent == agent and len(d.units) == len(node.units)]
    np.testing.assert_allclose(basis @ np.array(heard).T, 0, atol=1e-12)
    assert np.abs(written @ np.array(heard).T).max() > 0.05, "signals and rumours overlap"
    signal = recording.label("signal").to_numpy()
    assert 0.1 < (signal > 0).mean() < 0.4
    for (output, weights), direction in zip(node.readout, written):
        per_unit = float(np.array(weights) @ direction[list(node.units)])
        assert per_unit == pytest.approx(4.0 if network == "mlp" else 16.0)
        which = int(np.argmax([left_of(recording, subject, agent, output)[signal == k].mean() for k in (1, 2, 3)])) + 1
        expected = 4.0 * (signal == which)
        np.testing.assert_allclose(
            left_of(recording, subject, agent, output), expected, atol=1e-3 * 4 + GRU_BEND * (network == "gru")
        )
        for other in {"agent_0", "agent_1", "agent_2"} - {agent}:
            silent = left_of(recording, subject, other, output)
            np.testing.assert_allclose(silent, 0, atol=1e-3 + GRU_BEND * (network == "gru"))


def left_of(recording, subject, agent, output):
    return without_minor(recording, subject, agent)[:, output]


@pytest.mark.parametrize(("name", "network", "shared"), GRID)
def test_decoys_hold_something_and_change_no_logit(planted_instance, name, network, shared):
    subject, recording = planted_instance(name, network, shared)
    plays = {group: RowReplay(subject, recording, group) for group in subject.task.groups}
    whole = {group: played.logits() for group, played in plays.items()}
    for decoy in subject.key.decoys:
        group = decoy.agent.rpartition("_")[0]
        played = plays[group]
        assert played.activation(decoy.agent, decoy.site)[:, list(decoy.units)].std() > 0.05

        def scrambled(h, decoy=decoy):
            changed = h.copy()
            if decoy.basis:  # of units that hold other things too
                return changed + np.array(decoy.basis).sum(0)
            changed[:, list(decoy.units)] = 7.0
            return changed

        logits = played.logits(decoy.agent, decoy.site, scrambled)
        np.testing.assert_allclose(logits, whole[group], rtol=0, atol=2e-5 if decoy.basis else 0)


@pytest.mark.parametrize(("name", "network", "shared"), GRID)
def test_the_key_is_json_and_knows_every_readout(planted_instance, name, network, shared):
    subject, recording = planted_instance(name, network, shared)
    key = AnswerKey.from_json(json.loads(json.dumps(subject.key.to_json())))
    assert key == subject.key and key.sha256() == subject.task.key_sha256
    assert PublicTask.from_json(json.loads(json.dumps(subject.task.__dict__))) == subject.task
    for node in key.nodes:
        if not node.readout:
            continue
        played = RowReplay(subject, recording, node.agent.rpartition("_")[0])
        k, whole = played.agents.index(node.agent), played.logits()
        for place, unit in enumerate(node.units):

            def up(h, unit=unit):
                return h + np.eye(h.shape[1])[unit]

            change = (played.logits(node.agent, node.site, up) - whole)[:, k]
            for output, weights in node.readout:
                np.testing.assert_allclose(change[:, output], weights[place], atol=2e-4)


@pytest.mark.parametrize(("name", "network", "shared"), GRID[::3])
def test_no_agent_reaches_anothers_logits(planted_instance, name, network, shared):
    assert spillover(*planted_instance(name, network, shared)) == 0.0


def test_seeds_move_the_circuit_and_one_seed_gives_one_instance(tmp_path):
    keys = [planted("partner_goal", "gru", seed=seed, path=tmp_path).key for seed in range(6)]
    assert len({key.agents for key in keys}) > 1 and len({key.nodes[1].units for key in keys}) == 6
    again = planted("partner_goal", "gru", seed=3, path=tmp_path)
    assert again.key == keys[3]
    assert again.agents.origin() == planted("partner_goal", "gru", seed=3, path=tmp_path).agents.origin()


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="concept_neuron"):
        planted("concept_neurons", path=tmp_path)
    with pytest.raises(ConfigError, match="cnn"):
        planted("decoy", "cnn", path=tmp_path)
    assert circuit_names() == ["concept_neuron", "decoy", "message_code", "partner_goal", "role_switch", "sparse_code"]

"""What a dictionary of the units that choices are read from claims, and what of it the data do not decide."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.groundtruth import Finding, score
from marlnb.groundtruth.benchmark import RECOVERED_TARGET, run_and_score
from marlnb.groundtruth.instance import Instance, analyses
from marlnb.groundtruth.scoring.feature_claims import FeatureClaim
from marlnb.groundtruth.scoring.feature_parts import share_kept


def asked(planted_instance, *which):
    """Of 40 episodes: in 20 some of the listener's units are hardly ever on."""
    subject, _ = planted_instance(*which)
    with subject.record(40, name="recording-40") as recording:
        return run_and_score(subject, recording, analyses(["dictionary"])["dictionary"])


@pytest.mark.usefixtures("quick_dictionaries")
@pytest.mark.parametrize(
    ("circuit", "network", "shared"),
    [("role_switch", "mlp", False), ("partner_goal", "gru", True)],
)
def test_features_that_are_read_whole_or_are_rare_are_recovered_one_by_one(planted_instance, circuit, network, shared):
    """A role, there half the time; a plane that no unit holds. `make groundtruth` has the slower circuits."""
    result = asked(planted_instance, circuit, network, shared)
    assert min(result.by_kind().values()) >= RECOVERED_TARGET, result.table().query("recovered < 0.99")
    assert {"features", "span", "complete", "necessary"} <= set(result.by_kind())
    assert result.decoys_claimed == 0 and not result.abstained and not result.finding.doubts


@pytest.mark.usefixtures("quick_dictionaries")
def test_features_that_write_what_no_choice_reads_are_declined_and_their_span_is_not(planted_instance):
    result = asked(planted_instance, "partner_goal", "mlp", False)
    assert {item.kind for item in result.abstained} == {"features"}
    assert min(result.by_kind().values()) >= RECOVERED_TARGET and {"span", "complete"} <= set(result.by_kind())
    (doubt,) = result.finding.doubts
    assert "often there" in doubt and "the data do not decide" in doubt


def test_two_keys_of_one_network_fit_the_same_activations_and_interventions(planted_instance):
    """A goal from a message and a role. Two keys: the circuit's, and one by which each feature writes more, which no
    choice reads. Both write the same activations; without a feature, or with more of it, the logits are the same."""
    subject, recording = planted_instance("partner_goal", "mlp", False)
    instance = Instance.of(subject, recording)
    node = next(node for node in subject.key.nodes if node.readout)
    group, units = node.site.split("/")[0], list(node.units)
    h = recording[node.site].sel(agent=[node.agent]).to_numpy()[:, 0].astype(np.float64)
    slopes = instance.slopes(group, node.site)[instance.members(group).index(node.agent)]
    goal = recording.label("partner_goal").to_numpy()
    there = np.stack([goal == g for g in (1, 2, 3)], axis=1).astype(float)
    read = np.zeros((3, h.shape[1]))
    read[:, units] = np.array([h[goal == g][0, units] for g in (1, 2, 3)]) - 1.0
    given_goal = np.zeros(h.shape[1])
    given_goal[units] = 1.0
    first = there @ read + np.outer(there.sum(1), given_goal)  # goals along R z, and the fact of a message along 1
    second = there @ (read + given_goal)  # goals along 1 + R z
    assert np.allclose(first[:, units], h[:, units], atol=1e-5) and np.allclose(
        second[:, units], h[:, units], atol=1e-5
    )
    assert np.allclose(slopes @ read.T, slopes @ (read + given_goal).T, atol=1e-4)
    assert np.abs(slopes @ read.T).max() > 1.0 > 1e-3 > np.abs(slopes @ given_goal).max()
    lost = [(there[:, [g]] * rows[g]) @ slopes.T for g in range(3) for rows in (read, read + given_goal)]
    assert all(np.allclose(one, other, atol=1e-3) for one, other in zip(lost[::2], lost[1::2]))
    claims = [
        tuple(FeatureClaim(agent=node.agent, site=node.site, basis=(tuple(map(float, row)),)) for row in rows)
        for rows in (read, read + given_goal)
    ]
    by_key, by_other = (
        score(Finding("by hand", "partner_goal", "mlp", False, 0, ("features",), made), subject.key).recovered
        for made in claims
    )
    assert by_key == pytest.approx(1.0, abs=1e-4) and by_other < 0.1


def test_what_is_kept_of_logits_is_the_share_of_their_variance():
    whole = np.array([[0.0, 2.0], [2.0, 0.0], [4.0, 4.0]])
    assert share_kept(whole, whole + 7) == pytest.approx(1.0)
    assert share_kept(whole, whole * [1, 0]) == pytest.approx(0.5)
    assert share_kept(whole, 0 * whole) == pytest.approx(0.0)

"""mediation: finds gates that decoding and steering miss, and no units that are unread or untuned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.analysis.attribution.attribute import attribute
from marlnb.analysis.interventions.intervene import intervene
from marlnb.analysis.interventions.mediation import _p_above, mediation
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.groundtruth import Planted, planted
from marlnb.groundtruth.envs.sparse_signals import SparseSignalsConfig
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

SITE = "listener/actor/hidden_2"


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Planted, Recording]:
    subject = planted("message_code", seed=200, path=tmp_path_factory.mktemp("gated"))
    return subject, subject.record(40)


def test_gated_units_mediate_and_decoys_do_not(gated: tuple[Planted, Recording], tmp_path: Path) -> None:
    subject, recording = gated
    tuned = tuning(recording, site=SITE, label="goal", n_shuffles=40, n_bootstrap=20)
    result = mediation(subject.agents, tuned, episodes=40)
    (node,) = [n for n in subject.key.nodes if n.site == SITE]
    (decoy,) = [n for n in subject.key.decoys if n.site == SITE]
    assert set(result.mediators) <= set(node.units) and len(result.mediators) >= 10
    is_decoy = np.isin(result.unit, decoy.units)
    assert is_decoy.sum() == 3 and np.all(result.effect[is_decoy] == 0) and np.all(result.p_value[is_decoy] == 1)
    assert np.all(result.p_value >= tuned.p_value[result.unit]) and repr(result).startswith(result.verdict)
    assert result.table()["unit"].tolist() == tuned.tuned.tolist()
    few = mediation(subject.agents, tuned, episodes=5)
    assert any("only" in note for note in few.warnings) and "NOT TO BE TRUSTED" in repr(few)


@pytest.fixture
def redundant(tmp_path: Path) -> Agents:
    """Units 0 and 1 of hidden_1 both hold signal_0; hidden_2 is on if either is, and the head reads it."""
    spec = SparseSignalsConfig().build(1).spec
    (group,) = spec.groups
    torch.manual_seed(0)
    policy = ActorCritic(group, spec, MLPConfig(hidden=(6, 6)), MLPConfig(hidden=(4,)))
    network = policy.actor.network
    first, second = (layer.linear for layer in network.hidden)  # type: ignore[union-attr]
    with torch.no_grad():
        for tensor in (first.weight, first.bias, second.weight, second.bias, network.head.weight):  # type: ignore[union-attr]
            tensor.zero_()  # type: ignore[operator]
        first.weight[:2, group.observation.names.index("signal_0")] = 5.0  # type: ignore[index, operator]
        second.weight[0, :2], second.bias[0] = 20.0, -12.0  # type: ignore[index, operator]
        network.head.weight[0, 0] = 3.0  # type: ignore[union-attr, index, operator]
    return Agents({group.name: policy}, SparseSignalsConfig(), tmp_path)


def test_pairs_show_units_that_replace_each_other(redundant: Agents) -> None:
    with record(redundant, episodes=40, sites="agent/actor/hidden_1", progress=False) as recording:
        options = {"site": "agent/actor/hidden_1", "agent": "agent_0", "label": "signal_0"}
        tuned = tuning(recording, n_shuffles=40, n_bootstrap=20, **options)
    result = mediation(redundant, tuned, episodes=40)
    assert set(result.unit) == {0, 1} and len(result.mediators) == 0 and result.effect.max() < 1e-3
    assert [set(pair) for pair in result.redundant_pairs] == [{0, 1}] and result.pair_effect[0] > 0.03
    assert "1 pairs do only together" in result.verdict and result.rest_effect == pytest.approx(result.pair_effect[0])
    weak = replace(tuned, p_value=np.where(np.arange(len(tuned.p_value)) == 0, 0.04, tuned.p_value))
    assert result.p_pair[0] < 0.04 == mediation(redundant, weak, episodes=40).p_pair[0]  # both parts of both paths


def test_an_ablation_that_another_unit_replaces_is_declared_untested(redundant: Agents) -> None:
    """It moves the actions by 5e-9, which no interval of a distance excludes."""
    alone, both = (intervene(redundant, Ablate("agent/actor/hidden_1", units=u), episodes=20) for u in ([0], [0, 1]))
    declared = "whether other units replace the edited ones was not tested"
    assert 0 < alone.of("tv_direct", "agent_0").low < 1e-6 and declared in alone.verdict
    assert both.of("tv_direct", "agent_0").low > 0.02 and declared not in both.verdict


def test_an_attribution_by_single_ablations_does_not_deny_the_use_of_such_units(redundant: Agents) -> None:
    site = "agent/actor/hidden_1"
    with record(redundant, episodes=20, sites=site, progress=False) as recording:
        options = {"group": "agent", "to": "action", "site": site, "policies": redundant.by_group}
        result = attribute(recording, method="feature_ablation", **options)  # type: ignore[arg-type]
    assert not result.values.any() and "attributed most to no feature by itself" in result.verdict
    assert "an attribution proves neither use nor, where it is 0, its absence" in result.verdict


def test_units_of_a_critic_are_rejected(gated: tuple[Planted, Recording]) -> None:
    subject, recording = gated
    tuned = tuning(recording, site=SITE, label="goal", n_shuffles=20, n_bootstrap=20)
    tuned = replace(tuned, site="listener/critic/hidden_1")
    with pytest.raises(AnalysisError, match="chooses no actions"):
        mediation(subject.agents, tuned, episodes=5)


def test_the_one_sided_p_value_is_scipys() -> None:
    from scipy.stats import t, ttest_1samp

    x = np.random.default_rng(0).normal(0.1, 0.2, 25)
    half = t.ppf(0.975, 24) * x.std(ddof=1) / 5
    expected = ttest_1samp(x, 0.02, alternative="greater").pvalue
    assert _p_above(x.mean(), x.mean() + half, 25, 0.02) == pytest.approx(expected)
    assert _p_above(0.0, 0.0, 25, 0.02) == 1.0 and _p_above(0.5, 0.5, 25, 0.02) == 0.0

"""mediation: finds gates that decoding and steering miss, and no units that are unread or untuned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.interventions.mediation import _p_above, mediation
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.groundtruth import Planted, planted
from marlnb.recording.file.reader import Recording

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
    assert np.all(result.p_value >= tuned.p_value[result.unit]) and "mediators" in repr(result)
    assert result.table()["unit"].tolist() == tuned.tuned.tolist()
    few = mediation(subject.agents, tuned, episodes=5)
    assert any("only" in note for note in few.warnings) and "NOT TO BE TRUSTED" in repr(few)


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

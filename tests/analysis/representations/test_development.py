"""development: one score for each site and checkpoint, equal to that of each analysis."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from marlnb import plots
from marlnb.analysis.data.views import View
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.development import development
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording

TALK = Path(__file__).parents[3] / "data" / "speaker_listener"
SITE = "listener/actor/hidden_2"
MATRICES = ("values", "low", "high", "control", "untrained")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Recording]]:
    path = tmp_path_factory.mktemp("talk") / "run"
    shutil.copytree(TALK, path)
    made = [record(path, episodes=40, checkpoint=c, name=f"c{c}", values=False, progress=False) for c in (130, 10)]
    yield made
    for recording in made:
        recording.close()


def test_more_units_are_tuned_after_training(trained: list[Recording]) -> None:
    result = development(trained, label="goal", measure="tuning", sites=[SITE])
    assert result.iterations.tolist() == [10, 130] and result.sites == (SITE,)
    alone = tuning(trained[0], site=SITE, label="goal", n_shuffles=20, n_bootstrap=20)
    assert result.values[0, 1] == len(alone.tuned) / 64 > 0.9 and result.values[0, 0] < 0.5
    returns = trained[0].episodes["listener_0"].mean()
    assert result.untrained[0, 1] * 64 == alone.untrained.n_tuned
    assert result.returns["listener"][1] == pytest.approx(returns) and len(result.table()) == 2
    # a share has no interval; chance is no control, since it gives one network of 20 a tuned unit
    assert re.search(
        r" at iteration 130, not tested against its control \(untrained network: 0\.\d\d\); ", result.verdict
    )
    assert list(result.table().columns) == ["site", "iteration", "value", "low", "high", "untrained network"]
    curves = plots.development_curves(result)
    assert [line.get_ydata()[1] for line in curves.lines] == [result.values[0, 1], result.untrained[0, 1]]


def test_similarity_to_the_last_checkpoint_uses_the_same_time_steps(trained: list[Recording]) -> None:
    result = development(trained, measure="similarity", sites=[SITE])
    view = View(trained[0], SITE, policy_source=str(trained[0].run_path), checkpoint=10)
    assert result.values[0, 0] == pytest.approx(similarity(view, (trained[0], SITE), n_shuffles=1).score)
    assert result.values[0, 1] == pytest.approx(1.0) and result.values[0, 0] < 0.4
    assert (result.control < 0.2).all()
    assert result.verdict.startswith(f"linear CKA to the last checkpoint changed most at {SITE} (of 1 sites): from 0.")
    assert "where it is above its control (episodes paired at random: 0." in result.verdict
    assert "there is no untrained control; " in result.verdict and np.isnan(result.untrained).all()


def test_decoding_with_the_observation_as_control(trained: list[Recording]) -> None:
    result = development(trained, label="goal", sites=[SITE], n_shuffles=1)
    assert result.values[0, 1] > result.values[0, 0] and result.control_name == "observation alone"
    assert result.what == "goal decoded (balanced accuracy)"
    alone = decode(trained[0], site=SITE, label="goal", n_shuffles=1, progress=False)
    assert result.untrained[0, 1] == alone.scores[0].untrained
    assert "(observation alone: " in result.verdict and ", untrained network: " in result.verdict
    assert np.isfinite(result.control).all() and result.low[0, 1] <= result.values[0, 1] <= result.high[0, 1]


@pytest.mark.parametrize("measure", ["decode", "tuning"])
def test_a_label_that_never_varies_at_one_checkpoint(
    trained: list[Recording], measure: Literal["decode", "tuning"]
) -> None:
    def late(recording: Recording) -> np.ndarray:
        return (recording.rows["t"].to_numpy() > 12) & (recording is trained[0])

    result = development(trained, label=late, measure=measure, sites="listener/*/hidden_2", n_shuffles=1)
    assert result.sites == (SITE,) and np.isnan(result.values[0, 0]) and np.isfinite(result.values[0, 1])
    reason = "never varies over listener_0's 1000 rows"
    assert result.warnings[0].startswith("checkpoint 10: ") and reason in result.warnings[0]
    assert result.verdict.endswith(": no site has a score at two checkpoints, so no change is known.")
    assert np.isnan(result.low[0, 0])
    assert "nan" not in [text.get_text() for text in plots.development_map(result).texts]
    three = replace(
        result, iterations=np.array([10, 130, 200]), **{name: getattr(result, name)[:, [0, 1, 1]] for name in MATRICES}
    )
    assert " at iteration 130 to " in three.verdict and " at iteration 200, " in three.verdict


def test_a_score_at_no_checkpoint_is_an_error(trained: list[Recording]) -> None:
    with pytest.raises(AnalysisError, match=r"no checkpoint has a score; checkpoint 10: .*did you mean 'goal'"):
        development(trained, label="gaol", sites=[SITE])


def test_invalid_requests_are_rejected(trained: list[Recording]) -> None:
    with pytest.raises(AnalysisError, match="2 or more checkpoints"):
        development(trained[0], label="goal")
    with pytest.raises(AnalysisError, match="takes no label"):
        development(trained, label="goal", measure="similarity")


def test_recorded_checkpoints_that_the_run_no_longer_has(
    trained: list[Recording], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As for a run that recorded while it ran: analyses that need the policies leave these checkpoints out."""
    path = tmp_path_factory.mktemp("thin") / "run"
    shutil.copytree(trained[0].path.parents[1], path)
    for folder in (path / "checkpoints").iterdir():
        if folder.name == "10":
            shutil.rmtree(folder)
    made = [Recording.open(path / "recordings" / recording.path.name) for recording in trained]
    result = development(made, measure="similarity", sites=[SITE], n_shuffles=4)
    assert np.isnan(result.values[0, 0]) and result.values[0, 1] == pytest.approx(1.0)
    reason = r"checkpoint 10: its policies, .*, are not saved in .*run; a training run saves .*keep_checkpoints=0"
    assert re.match(reason, result.warnings[0])
    result = development(made, label="goal", measure="tuning", sites=[SITE])
    assert result.iterations.tolist() == [10, 130]

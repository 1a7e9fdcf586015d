"""development: one score a place and checkpoint, equal to what each analysis gives by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.data.views import View
from marlnb.analysis.representations.development import development
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording

TALK = Path(__file__).parents[3] / "data" / "speaker_listener"
SITE = "listener/actor/hidden_2"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Recording]]:
    path = tmp_path_factory.mktemp("talk") / "run"
    shutil.copytree(TALK, path)
    made = [record(path, episodes=40, checkpoint=c, name=f"c{c}", values=False, progress=False) for c in (130, 10)]
    yield made
    for one in made:
        one.close()


def test_tuning_comes_with_training(trained: list[Recording]) -> None:
    found = development(trained, label="goal", measure="tuning", sites=[SITE])
    assert found.iterations.tolist() == [10, 130] and found.sites == (SITE,)
    alone = tuning(trained[0], site=SITE, label="goal", n_shuffles=20, n_bootstrap=20)
    assert found.values[0, 1] == len(alone.tuned) / 64 > 0.9 and found.values[0, 0] < 0.5
    returns = trained[0].episodes["listener_0"].mean()
    assert found.returns["listener"][1] == pytest.approx(returns) and len(found.table()) == 2


def test_similarity_to_the_last_is_of_the_same_moments(trained: list[Recording]) -> None:
    found = development(trained, measure="similarity", sites=[SITE])
    view = View(trained[0], SITE, policy_source=str(trained[0].run_path), checkpoint=10)
    assert found.values[0, 0] == pytest.approx(similarity(view, (trained[0], SITE), n_shuffles=1).score)
    assert found.values[0, 1] == pytest.approx(1.0) and found.values[0, 0] < 0.4
    assert (found.control < 0.2).all() and "Development(linear CKA" in repr(found)


def test_decoding_beside_the_observation(trained: list[Recording]) -> None:
    found = development(trained, label="goal", sites=[SITE], n_shuffles=1)
    assert found.values[0, 1] > found.values[0, 0] and found.control_name == "observation alone"
    assert found.what == "goal decoded (balanced accuracy)"
    assert np.isfinite(found.control).all() and found.low[0, 1] <= found.values[0, 1] <= found.high[0, 1]


def test_what_cannot_be_asked_is_said(trained: list[Recording]) -> None:
    with pytest.raises(AnalysisError, match="2 or more checkpoints"):
        development(trained[0], label="goal")
    with pytest.raises(AnalysisError, match="takes no label"):
        development(trained, label="goal", measure="similarity")


def test_checkpoints_that_are_recorded_and_no_longer_kept(
    trained: list[Recording], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As of a training that recorded while it went on: what was decoded stays, what needs the policies says so."""
    path = tmp_path_factory.mktemp("thin") / "run"
    shutil.copytree(trained[0].path.parents[1], path)
    for folder in (path / "checkpoints").iterdir():
        if folder.name == "10":
            shutil.rmtree(folder)
    made = [Recording.open(path / "recordings" / one.path.name) for one in trained]
    with pytest.raises(AnalysisError, match=r"keeps only checkpoints \[.*\]: train with keep_checkpoints=0"):
        development(made, measure="similarity", sites=[SITE])
    found = development(made, label="goal", measure="tuning", sites=[SITE])
    assert found.iterations.tolist() == [10, 130]

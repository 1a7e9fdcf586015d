"""Streamed decoding gives the same numbers as in memory, from the same rows, folds, shuffles and controls."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marlnb.analysis.decoding import streaming
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.stats import ridge, streaming_ridge
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.streaming_problems import FitSplit, StreamedTargets
from marlnb.analysis.stats.streaming_ridge import RidgeSums, ridge_from_sums
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"


def both(recording: Recording, label: object, **changes: object) -> tuple[Decoding, Decoding]:
    options = {"site": SITE, "label": label, "n_shuffles": 4, "progress": False, **changes}
    return decode(recording, **options), decode(recording, memory_bytes=0, **options)  # type: ignore[arg-type]


def test_a_streamed_quantity_equals_that_in_memory(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BATCH_ROWS", 300)  # several batches
    monkeypatch.setattr(ridge, "RIDGE_STRENGTHS", (10.0,))  # the two choose the strength differently on few rows
    monkeypatch.setattr(streaming_ridge, "RIDGE_STRENGTHS", (10.0,))
    memory, streamed = both(recording, "goal_dx", offset=2)
    a, b = memory.of(), streamed.of()
    assert a.n_rows == b.n_rows == 60 * 23
    names = ("score", "low", "high", "observation", "untrained", "shuffled", "shuffled_high", "control", "p_value")
    np.testing.assert_allclose([getattr(b, n) for n in names], [getattr(a, n) for n in names], atol=1e-4)
    for kind in ("pattern", "filter"):
        one, other = (np.array(d.direction(kind=kind).vector) for d in (memory, streamed))  # type: ignore[arg-type]
        assert one @ other > 1 - 1e-6
    assert memory.direction().scale == pytest.approx(streamed.direction().scale, rel=1e-4)


def test_streamed_classes_equal_the_classes_in_memory(recording: Recording) -> None:
    memory, streamed = both(recording, "listener_nearest_landmark", n_shuffles=2)
    a, b = memory.of(), streamed.of()
    assert b.score == pytest.approx(a.score, abs=0.02) and b.observation == pytest.approx(a.observation, abs=0.02)
    assert b.untrained == pytest.approx(a.untrained, abs=0.02)
    assert b.shuffled == pytest.approx(a.shuffled, abs=0.02) and b.control == pytest.approx(a.control, abs=0.02)
    value = memory.classes[0]
    for kind in ("pattern", "filter"):
        one, other = (np.array(d.direction(value=value, kind=kind).vector) for d in (memory, streamed))  # type: ignore[arg-type]
        assert one @ other > 0.98
    assert streamed.warnings == memory.warnings


def test_one_time_step_streamed(recording: Recording) -> None:
    memory, streamed = both(recording, "goal_dx", at=4, n_shuffles=1)
    assert streamed.of(t=4).n_rows == 60
    assert streamed.of(t=4).score == pytest.approx(memory.of(t=4).score, abs=0.2)  # 48 rows, 64 units
    with pytest.raises(AnalysisError, match="use one time step"):
        both(recording, "goal_dx", at="each", n_shuffles=1)


def test_sums_give_the_same_fit_as_scikit_learn_on_the_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 6)) * np.arange(1, 7) + 100
    y = x[:, :2] @ np.array([[1.0, -2.0], [0.5, 0.0]]) + 3 * rng.standard_normal((3000, 2))
    part = np.repeat(np.arange(3), 1000)
    sums = RidgeSums(3, 6, x[:10].mean(axis=0), y[:10].mean(axis=0))
    for start in range(0, 3000, 700):
        sums.add(part[start : start + 700], x[start : start + 700], y[start : start + 700])
    train, test = np.array([True, True, False]), np.array([False, False, True])
    scores, fits = ridge_from_sums(sums, [FitSplit(0, train, test), FitSplit(1, train, test)])
    for target in range(2):
        oracle = make_pipeline(StandardScaler(), RidgeCV(10.0 ** np.arange(-2, 5))).fit(x[:2000], y[:2000, target])
        assert scores[target] == pytest.approx(oracle.score(x[2000:], y[2000:, target]), abs=1e-6)
        np.testing.assert_allclose(fits[target].predict(x[:5])[:, 0], oracle.predict(x[:5]), rtol=1e-5)


def test_labels_are_shuffled_as_in_memory() -> None:
    episode = np.array([7, 7, 7, 2, 2, 9, 9, 9])
    y, t = np.arange(8), np.array([0, 1, 2, 0, 1, 0, 1, 2])
    targets = StreamedTargets(y, episode, t, np.array([0, 0, 0, 1, 1, 0, 0, 0]), "classification", 2, seed=3)
    rng, shuffle = np.random.default_rng(3), EpisodeShuffle(episode, t)
    expected = [shuffle.permute(y, rng) for _ in range(2)]
    shuffled = np.concatenate([targets.of(slice(0, 4)), targets.of(slice(4, 8))])
    np.testing.assert_array_equal(shuffled[:, 1:3].T, expected)
    assert targets.part.tolist() == [0, 1, 0, 2, 3, 0, 1, 0]


def test_a_streamed_time_step_that_few_episodes_reach_has_folds_of_their_own(
    recording: Recording, tmp_path: Path
) -> None:
    path = tmp_path / "recording.h5"
    path.write_bytes(recording.path.read_bytes())
    quantity = np.random.default_rng(0).standard_normal(len(recording)).astype(np.float32)
    with h5py.File(path, "r+") as file:
        units = file[f"activations/{SITE}"]
        units[...] = np.broadcast_to(quantity[:, None, None], units.shape)
    reached = (recording.rows["t"].to_numpy() < 3) | (recording.rows["episode"].to_numpy() < 12)
    with Recording.open(path) as planted:  # with seed 5, the first fold of all episodes has none of the first twelve
        for result in both(planted, quantity, at=15, rows=reached, n_shuffles=1, seed=5):
            assert result.of(t=15).n_episodes == 12
            assert result.of(t=15).score > 0.99

"""given=: labels, the own action, time and observed features as columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.analysis.data.given import given_columns
from marlnb.analysis.data.rows import RowSource
from marlnb.errors import AnalysisError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from tests.recording.runs import LivesConfig, make_run


def test_classes_are_one_hot_and_quantities_one_column(recording: Recording) -> None:
    source = RowSource(recording, "listener")
    rows = source.rows(None, source.resolve_checkpoint(None))
    columns = given_columns(source, rows, ["action", "landmark_0_dx", ("speaker_0", "action")])
    assert columns is not None and str(columns) == "own action, landmark_0_dx, speaker_0 action"
    action = recording.steps("listener", "action").to_numpy()[:, 0]
    dx = recording.steps("listener", "observation").to_numpy()[:, 0, 2]
    n_actions = len(np.unique(action))
    values = columns.values[:, 0]
    np.testing.assert_array_equal(np.unique(action)[values[:, :n_actions].argmax(axis=1)], action)
    np.testing.assert_array_equal(values[:, :n_actions].sum(axis=1), 1)
    np.testing.assert_allclose(values[:, n_actions], dx)
    messages = recording.steps("speaker", "action").to_numpy()[:, 0]
    assert values.shape[1] == n_actions + 1 + len(np.unique(messages)) and columns.known.all()


def test_the_own_action_is_all_its_components(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), MLPConfig(hidden=(8,)))
    with record(run, episodes=5, values=False, progress=False) as recording:
        source = RowSource(recording, "b")
        columns = given_columns(source, source.rows(None), "action")
        action, acting = (recording.steps("b", name).to_numpy() for name in ("action", "acting"))
    assert columns is not None and columns.names == ("own action",)
    np.testing.assert_array_equal(columns.known, acting)
    assert action.shape[2] == 2 and np.ptp(action, axis=0).all() and 5 < acting.sum() < len(acting)
    np.testing.assert_allclose(columns.values[acting], action[acting])


def test_unknown_names_suggest_the_nearest(recording: Recording) -> None:
    source = RowSource(recording, "listener")
    rows = source.rows(None, source.resolve_checkpoint(None))
    with pytest.raises(AnalysisError, match="no label, field or observed feature 'landmark0_dx'; did you mean"):
        given_columns(source, rows, "landmark0_dx")
    with pytest.raises(AnalysisError, match="names nothing"):
        given_columns(source, rows, [])
    with pytest.raises(AnalysisError, match="a value for each of its 1500 rows; got 3"):
        given_columns(source, rows, 3)  # type: ignore[arg-type]
    with pytest.raises(AnalysisError, match=r"a tuple is \(agent, field\): give several labels as a list"):
        given_columns(source, rows, ("message_0", "message_1"))
    with pytest.raises(AnalysisError, match=r"another agent's is \('speaker_0', 'action'\)"):
        given_columns(source, rows, "speaker_0/action")
    assert given_columns(source, rows, None) is None

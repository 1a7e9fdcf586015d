"""rows=: conditions on labels, fields, features and time give the rows that numpy gives."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.analysis.data import row_condition
from marlnb.analysis.data.labels import Labels
from marlnb.analysis.data.row_condition import rows_where
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording


@pytest.fixture
def source(recording: Recording) -> RowSource:
    return RowSource(recording, "listener")


@pytest.fixture
def rows(source: RowSource) -> Rows:
    return source.rows(None, source.resolve_checkpoint(None))


def test_conditions_select_the_rows_that_numpy_selects(recording: Recording, source: RowSource, rows: Rows) -> None:
    goal = np.asarray(recording.classes("goal"))[recording.label("goal").to_numpy().astype(int)]
    feature = recording.steps("listener", "observation").to_numpy()[:, 0, 2]
    action = recording.steps("listener", "action").to_numpy()[:, 0]
    right = source.env.group("listener").action.names.index("right")
    expected = {
        "goal == 'red' and 3 <= t < 10": (goal == "red") & (rows.t >= 3) & (rows.t < 10),
        "goal in ('red', 'blue')": np.isin(goal, ["red", "blue"]),
        "goal not in ['red', 'blue'] or t % 2 == 0": ~np.isin(goal, ["red", "blue"]) | (rows.t % 2 == 0),
        "not (landmark_0_dx > -landmark_0_dx + 0.5)": ~(feature > -feature + 0.5),
        "action == 'right'": action == right,
    }
    for condition, selected in expected.items():
        assert 0 < selected.sum() < len(rows)
        np.testing.assert_array_equal(rows_where(source, rows, condition)[:, 0], selected, condition)


def test_a_number_equals_the_stored_value_that_it_names(recording: Recording, source: RowSource, rows: Rows) -> None:
    feature = recording.steps("listener", "observation").to_numpy()[:, 0, 2]
    values = np.unique(feature)
    value = next(x for x in values[len(values) // 2 :] if float(str(x)) < float(x))  # float32(0.3) > 0.3
    text = str(value)  # the shortest decimal number that is read as this float32
    expected = {
        f"landmark_0_dx == {text}": feature == value,
        f"landmark_0_dx in (99, {text})": feature == value,
        f"landmark_0_dx <= {text}": feature <= value,
        f"landmark_0_dx > {text}": feature > value,
        f"0 == landmark_0_dx - {text}": feature == value,
    }
    for condition, selected in expected.items():
        np.testing.assert_array_equal(rows_where(source, rows, condition)[:, 0], selected, condition)


def test_a_condition_selects_for_each_agent(team: Recording) -> None:
    source = RowSource(team, "agent")
    rows = source.rows(None, source.resolve_checkpoint(None))
    selected = rows_where(source, rows, "velocity_x > 0")
    velocity = source.observations("agent", rows)[:, :, 0]
    np.testing.assert_array_equal(selected[:, [0, 2]], velocity[:, [0, 2]] > 0)


def test_rows_that_a_mask_hides_are_not_selected(source: RowSource, rows: Rows) -> None:
    hidden = np.arange(len(rows)) % 2 == 1
    selected = rows_where(source, rows, np.ma.masked_array(np.ones(len(rows), bool), mask=hidden))
    np.testing.assert_array_equal(selected[:, 0], ~hidden)


def test_rows_without_a_value_are_not_selected(source: RowSource, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.where(rows.t < 5, np.nan, 1.0)[:, None]
    gaps = Labels(values, ~np.isnan(values), "distance", ())
    monkeypatch.setattr(row_condition, "resolve_label", lambda *_: gaps)
    np.testing.assert_array_equal(rows_where(source, rows, "not distance > 3")[:, 0], rows.t >= 5)


@pytest.mark.parametrize(
    "condition, message",
    [
        ("gaol == 'red'", "no label, field or observed feature 'gaol'; did you mean 'goal'"),
        ("goal == 'purple'", r"goal has no class 'purple'; valid: \['red', 'green', 'blue'\]"),
        ("goal == 1", r"compares goal \(words\) with 1 \(numbers\); the classes of goal are"),
        ("goal", "not true or false"),
        ("t and goal == 'red'", "'t' is not true or false: compare it"),
        ("t >", "is not a valid condition: invalid syntax"),
        ("t > 100", "selects none of 1500 rows"),
        ("__import__('os')", "is not supported; valid are names, numbers"),
        ("t.real > 1", "'t.real' is not supported"),
        (np.array(True), r"each of the recording's 1500 rows; got bool \[\]"),
        (np.ones(3, bool), "a bool array with a value for each of the recording's 1500 rows; got bool"),
    ],
)
def test_errors_name_what_is_valid(source: RowSource, rows: Rows, condition: str | np.ndarray, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        rows_where(source, rows, condition)

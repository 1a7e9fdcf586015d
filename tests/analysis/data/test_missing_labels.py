"""Rows whose label is not a number: every analysis that takes labels leaves them out and reports how many."""

from __future__ import annotations

import numpy as np
import pytest

from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.data.missing_labels import MissingLabels
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.event_average import event_average
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_1"
N = 60 * 25


def with_gaps(recording: Recording, label: str, n_missing: int) -> np.ndarray:
    """The label as numbers, NaN at the first rows."""
    values = recording.label(label).to_numpy().astype(np.float64)
    assert len(values) == N
    values[:n_missing] = np.nan
    return values


@pytest.mark.parametrize("memory_bytes", [1 << 30, 0])  # in memory, and streamed
def test_decoding(recording: Recording, memory_bytes: int) -> None:
    options = {"site": SITE, "n_shuffles": 1, "memory_bytes": memory_bytes, "progress": False}
    few = decode(recording, label=with_gaps(recording, "goal_dx", 40), **options)  # type: ignore[arg-type]
    assert few.notes == (f"listener_0: 40 of {N} rows are left out: at 40 'label' is not a number",)
    assert few.of().n_rows == N - 40 and few.warnings == ()
    assert few.notes[0] in repr(few) and few.to_json()["notes"] == list(few.notes)
    most = decode(recording, label=with_gaps(recording, "goal_dx", 800), **options)  # type: ignore[arg-type]
    message = f"listener_0: 800 of {N} rows are left out: at 800 'label' is not a number"
    assert most.notes == () and message in most.warnings
    assert decode(recording, label="goal_dx", **options).notes == ()  # type: ignore[arg-type]


def test_decoding_classes_and_later_steps(recording: Recording) -> None:
    """NaN is no class; steps beyond an episode's end were requested and are not missing."""
    goal = with_gaps(recording, "goal", 100)  # four episodes
    result = decode(recording, site=SITE, label=goal, kind="classification", offset=5, n_shuffles=1, progress=False)
    assert result.classes == ("0.0", "1.0", "2.0")
    assert result.notes == ("listener_0 at offset 5: 80 of 1200 rows are left out: at 80 'label' is not a number",)
    assert result.of().n_rows == 1200 - 80


def test_what_another_agent_did(recording: Recording) -> None:
    """All agents act at every step here, so nothing is left out."""
    result = decode(recording, site=SITE, label=("listener_0", "action"), n_shuffles=1, progress=False)
    assert result.notes == ()


def test_tuning_and_events(recording: Recording) -> None:
    message = f"listener_0: 40 of {N} rows are left out: at 40 'label' is not a number"
    result = tuning(recording, site=SITE, label=with_gaps(recording, "goal_dx", 40), n_shuffles=20, n_bootstrap=20)
    assert result.notes == (message,) and result.count.sum() == N - 40 and message in repr(result)
    event = (np.arange(N) % 25 == 3).astype(float)
    event[:40] = np.nan
    with pytest.raises(
        AnalysisError, match=r"is not true or false: set value= to the value that is the event, for example value=0.0"
    ):
        event_average(recording, site=SITE, event=event)
    around = event_average(recording, site=SITE, event=event, value=1, n_shuffles=20, n_bootstrap=20)
    assert around.notes == (message,) and message in repr(around)
    assert around.n_events[around.lags == 0] == 58  # t=3 of the first two episodes is where the unknown rows


def test_concepts(recording: Recording) -> None:
    """Missing values of the concept, of the fixed label, and of the rows that the score counts."""
    concept = (with_gaps(recording, "goal", 50) == 2).astype(float)
    concept[:50] = np.nan
    fixed = with_gaps(recording, "goal_dx", 75)
    where = np.ones(N)
    where[:100] = np.nan
    result = concept_activation(
        recording,
        site=SITE,
        concept=concept,
        controlling_for=[fixed],
        where=where,
        to="logit",
        target=0,
        n_runs=4,
        n_shuffles=20,
    )
    assert result.notes == (
        f"listener_0: 50 of {N} rows are left out: at 50 'label' is not a number",
        f"listener_0: 25 of {N - 50} rows are left out: at 25 'label' is not a number",
    )
    assert result.scores[0].n_rows == N - 100 and result.notes[0] in repr(result)


def test_words_are_classes_as_their_numbers_are(recording: Recording) -> None:
    number = np.arange(N) % 2
    words = np.array(["left", "right"])[number]
    by_word, by_number = (
        decode(recording, site=SITE, label=label, n_shuffles=3, progress=False) for label in (words, number)
    )
    assert [each.score for each in by_word.scores] == [each.score for each in by_number.scores]
    by_word, by_number = (tuning(recording, site=SITE, label=label, n_shuffles=20) for label in (words, number))
    np.testing.assert_array_equal(by_word.strength, by_number.strength)


def test_counts_by_hand() -> None:
    considered = np.array([True, True, True, True, False])
    known = np.array([True, True, True, False, False])
    gone = "it is unknown because that agent did not act, was not alive, or its episode's end was not recorded"
    result = MissingLabels()
    result.add("a", "x", considered, known, np.zeros(5, bool))
    assert result.notes == [f"a: 1 of 4 rows are left out: at 1 {gone}"] and not result.warnings
    result.add("a", "x", considered, ~known, np.array([True, False, False, False, True]))
    assert result.warnings == [f"a: 3 of 4 rows are left out: at 1 'x' is not a number and at 2 {gone}"]

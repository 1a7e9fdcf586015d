"""Values that are not finite and units that never fire: each analysis says which, and in its own words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from marlnb.analysis.concepts.tcav import concept_activation
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.representations.embedding import embed
from marlnb.analysis.representations.event_average import event_average
from marlnb.analysis.representations.similarity import similarity
from marlnb.analysis.representations.tuning import tuning
from marlnb.errors import AnalysisError
from marlnb.recording.file.reader import Recording

SITE = "listener/actor/hidden_2"
AGENT = "listener_0"
Analysis = Callable[[Recording], object]
READ_UNITS: dict[str, Analysis] = {
    "decode": lambda r: decode(r, site=SITE, label="goal", n_shuffles=1, progress=False),
    "streamed": lambda r: decode(r, site=SITE, label="goal", n_shuffles=1, memory_bytes=1, progress=False),
    "tuning": lambda r: tuning(r, site=SITE, label="goal", n_shuffles=20, n_bootstrap=20),
    "embed": lambda r: embed(r, site=SITE),
    "event": lambda r: event_average(r, site=SITE, event="action", value="left"),
    "similarity": lambda r: similarity((r, SITE), (r, "listener/actor/hidden_1")),
    "concept": lambda r: concept_activation(r, site=SITE, concept="goal", value="red", to="logit", target="right"),
}
READ_OBSERVATIONS: dict[str, Analysis] = {
    "classes": lambda r: decode(r, site=SITE, label="goal", n_shuffles=1, progress=False),
    "quantity": lambda r: decode(r, site=SITE, label="goal_dx", n_shuffles=1, progress=False),
    "streamed": lambda r: decode(r, site=SITE, label="goal", n_shuffles=1, memory_bytes=1, progress=False),
    "event": lambda r: event_average(r, field="observation", agent=AGENT, event="action", value="left"),
}


def changed(recording: Recording, path: str, where: tuple[int, ...] | slice, value: float) -> Recording:
    """A copy next to the recording, in its run folder, with other values."""
    copy = Path(recording.path).with_name("odd.h5")
    copy.write_bytes(recording.path.read_bytes())
    with h5py.File(copy, "r+") as file:
        file[path][where] = value
    return Recording.open(copy)


@pytest.mark.parametrize("name", READ_UNITS)
def test_a_unit_that_is_not_finite(recording: Recording, name: str) -> None:
    with (
        changed(recording, f"activations/{SITE}", (5, 0, 3), np.inf) as odd,
        warnings.catch_warnings(),
        pytest.raises(AnalysisError, match="not finite"),
    ):
        warnings.simplefilter("error")
        READ_UNITS[name](odd)


@pytest.mark.parametrize("name", READ_OBSERVATIONS)
def test_an_observation_that_is_not_finite(recording: Recording, name: str) -> None:
    with (
        changed(recording, "steps/listener/observation", (10, 0, 0), np.nan) as odd,
        pytest.raises(AnalysisError, match=r"observation of listener_0 has values that are not finite"),
    ):
        READ_OBSERVATIONS[name](odd)


def test_an_average_of_what_never_varies_is_doubted(recording: Recording) -> None:
    with changed(recording, f"activations/{SITE}", slice(None), 0.0) as odd:
        average = event_average(odd, site=SITE, event="action", value="left")
    assert f"{SITE} of {AGENT} never varies" in average.warnings

"""A small sample of `make fuzz`: no damaged recording gives other values, or an error that is not marlnb's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.recordings import RIGHT, damage, make_recording, read_all, read_outcome, repair_outcome, structure_of


@pytest.mark.timeout(120)
def test_damaged_recordings_are_refused_or_read_as_they_were_written(tmp_path: Path) -> None:
    base = make_recording(tmp_path)
    expected, content, structure = read_all(base), base.read_bytes(), structure_of(base)
    path, outcomes = tmp_path / "damaged.h5", []
    for number in range(16):
        what, data = damage(content, structure, np.random.default_rng([7, number]))
        for outcome in (read_outcome, repair_outcome) if number % 4 == 0 else (read_outcome,):
            path.write_bytes(data)
            kind, text = outcome(path, expected)
            assert kind in RIGHT, f"{what}: {kind}: {text}"
            outcomes.append(kind)
    assert set(outcomes) == set(RIGHT)

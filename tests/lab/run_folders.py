"""Run folders for tests of the extension: as a run leaves them, written by hand, of which hundreds are quick."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from marlnb.training.runs.files import EVENTS, EXPERIMENT, METRICS, STATUS, line_of

DATA = Path(__file__).parents[2] / "data" / "speaker_listener"


def write_run(
    folder: Path, *, state: str = "complete", seed: int = 0, frames: int = 100_000, rows: int = 50, **changes: Any
) -> Path:
    """A run whose return rises from -40 to -10 - seed.

    Args:
        changes: entries of the experiment that differ from those of data/speaker_listener.
    """
    folder.mkdir(parents=True)
    experiment = json.loads((DATA / EXPERIMENT).read_text()) | {"seed": seed, "frames": 100_000} | changes
    lines = [
        line_of(
            {
                "iteration": k,
                "frames": k * frames // rows,
                "returns": dict.fromkeys(("speaker", "listener"), -10 - seed - 30 * math.exp(-4 * k / rows)),
                "learning": {"speaker": {"entropy": 1.5 - k / rows}},
            }
        )
        for k in range(1, rows + 1)
    ]
    (folder / METRICS).write_text("".join(f"{line}\n" for line in lines))
    status = {"state": state, "frames": frames, "frames_total": 100_000, "updated": time.time(), "host": "node7"}
    (folder / STATUS).write_text(json.dumps(status))
    (folder / EVENTS).write_text("2026-01-01T00:00:00+0000 started\n")
    (folder / EXPERIMENT).write_text(json.dumps(experiment))
    return folder


def keep_rows(run: Path, first: int, last: int) -> None:
    """Leaves a run the metrics of these iterations only."""
    file = run / METRICS
    file.write_text("".join(file.read_text().splitlines(keepends=True)[first - 1 : last]))

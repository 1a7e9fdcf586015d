"""read_status: the status of the training in a run folder, from its files alone; nothing heavy is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marlnb.training.runs.files import LOCK, STATUS, read_json
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.rows import checked_status


def read_status(run: Path) -> dict[str, Any]:
    """state, frames, frames_per_second, eta_s, pid, host, updated (seconds since 1970); as far as known.

    state is interrupted if a training ended without reporting it, for example after a kill.

    Raises:
        RunError: the file cannot be read.
    """
    file = run / STATUS
    status = checked_status(read_json(file)) if file.exists() else {"state": "created", "frames": 0}
    if status["state"] in ("running", "paused") and not is_locked(run / LOCK):
        status["state"] = "interrupted"
    return status

"""What of a run was made with a checkpoint, and a recording opened to be looked into."""

from __future__ import annotations

from pathlib import Path

from marlnb.errors import MarlnbError, RecordingError
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.checkpoint import Checkpoint
from marlnb.training.runs.run import Run


def recordings_made_with(run: Run, checkpoint: Checkpoint) -> list[str]:
    """Names of the run's recordings that hold episodes of a checkpoint; one that cannot be read says so."""
    found = []
    for name, path in run.recordings.items():
        try:
            with open_shared(path) as recording:
                if checkpoint.sha256 in [recording.checkpoint[1], *recording.checkpoints["sha256"]]:
                    found.append(name)
        except (MarlnbError, OSError, KeyError):
            found.append(f"{name} perhaps (it cannot be read now)")
    return found


def open_shared(path: Path) -> Recording:
    """A recording, whoever else has it open: within a process HDF5 opens a file twice only with the same locking."""
    try:
        return Recording.open(path)
    except RecordingError:
        return Recording.open(path, locking=False)

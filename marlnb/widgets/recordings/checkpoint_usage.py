"""Which recordings of a run were made with a checkpoint; opening a recording that may be open elsewhere."""

from __future__ import annotations

from pathlib import Path

from marlnb.errors import MarlnbError, RecordingError
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.recorded_policies import has_weights
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.run import Origin, Run


def recordings_made_with(run: Run, checkpoint: Checkpoint) -> list[str]:
    """Names of the run's recordings that hold episodes of a checkpoint; one that cannot be read is marked."""
    names = []
    for name, path in run.recordings.items():
        try:
            with open_shared(path) as recording:
                table = recording.checkpoints
                origins = {recording.checkpoint, *zip(table["iteration"], table["sha256"])}
                same_iteration = [Origin(*origin) for origin in origins if origin[0] == checkpoint.iteration]
                if any(has_weights(run, origin) for origin in same_iteration):
                    names.append(name)
        except (MarlnbError, OSError, KeyError):
            names.append(f"{name} perhaps (it cannot be read now)")
    return names


def open_shared(path: Path) -> Recording:
    """Opens a recording that may already be open in this process: HDF5 requires the same locking for both."""
    try:
        return Recording.open(path)
    except RecordingError:
        return Recording.open(path, locking=False)

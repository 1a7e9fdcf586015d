"""remove_checkpoint: deletes one checkpoint of a run, unless a run in progress needs it."""

from __future__ import annotations

import os
import shutil

from marlnb.errors import CheckpointError
from marlnb.training.runs.checkpoints.checkpoint import TEMPORARY, Checkpoint
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import Which
from marlnb.training.runs.states import RUNNING_STATES


def remove_checkpoint(run: str | os.PathLike[str] | Run, which: Which) -> Checkpoint:
    """Deletes a checkpoint atomically, also if this process is killed.

    Raises:
        CheckpointError: there is no such checkpoint, it cannot be deleted, or it is the only one of a run in
            progress.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    checkpoint = opened.checkpoint(which)
    reason = why_not(opened, checkpoint)
    if reason:
        raise CheckpointError(reason)
    temporary = checkpoint.path.with_name(f"{TEMPORARY}removed-{checkpoint.iteration}")  # deleted later after a kill
    try:
        checkpoint.path.rename(temporary)
        shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(f"{checkpoint.path} cannot be deleted: {error.strerror or error}") from error
    opened.log_event(f"checkpoint {checkpoint.iteration} was deleted")
    return checkpoint


def why_not(run: Run, checkpoint: Checkpoint) -> str:
    """Why a checkpoint cannot be deleted now; empty if it can."""
    if run.status()["state"] in RUNNING_STATES and len(run.checkpoints) == 1:
        return (
            f"checkpoint {checkpoint.iteration} is the only one of {run.shown_path}, which is being trained: if the "
            "training were killed, everything learned would be lost. Stop the training or save another checkpoint first"
        )
    return ""

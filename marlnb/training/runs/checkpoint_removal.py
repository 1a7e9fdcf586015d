"""remove_checkpoint: takes one checkpoint of a run away, unless a training would be left without any."""

from __future__ import annotations

import os
import shutil

from marlnb.errors import CheckpointError
from marlnb.training.runs.checkpoint import TEMPORARY, Checkpoint
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import Which

ALIVE = ("running", "paused")


def remove_checkpoint(run: str | os.PathLike[str] | Run, which: Which) -> Checkpoint:
    """Removes a checkpoint; others never see a part of one, also after a kill.

    Raises:
        CheckpointError: there is no such checkpoint, it cannot be removed, or it is the only one of a run that trains.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    checkpoint = opened.checkpoint(which)
    reason = why_not(opened, checkpoint)
    if reason:
        raise CheckpointError(reason)
    aside = checkpoint.path.with_name(f"{TEMPORARY}removed-{checkpoint.iteration}")  # what a kill leaves is cleared
    try:
        checkpoint.path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(f"{checkpoint.path} cannot be removed: {error.strerror or error}") from error
    opened.log_event(f"checkpoint {checkpoint.iteration} was removed")
    return checkpoint


def why_not(run: Run, checkpoint: Checkpoint) -> str:
    """Why a checkpoint cannot be removed now; empty where it can."""
    if run.status()["state"] in ALIVE and len(run.checkpoints) == 1:
        return (
            f"checkpoint {checkpoint.iteration} is the only one of {run.path}, which is training: a kill would "
            f"lose all that was learnt. Stop it, or save another one, first"
        )
    return ""

"""delete_run: deletes a run's folder, unless a training run or a job uses it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from marlnb.disk import problem_of
from marlnb.errors import RunError
from marlnb.training.runs.files import JOB_LOCK, LOCK, is_run
from marlnb.training.runs.lock import is_locked


def delete_run(run: Path) -> None:
    """Deletes a run with its checkpoints and recordings. It is renamed first, so that no half of it stays a run.

    Raises:
        RunError: it is no run, a training run or a batch job uses it, or it cannot be deleted.
    """
    if not is_run(run) or run.is_symlink():
        raise RunError(f"{run} is not a run folder, and was not deleted")
    if is_locked(run / LOCK):
        raise RunError(f"{run} is being trained, and was not deleted; stop the training first")
    if is_locked(run / JOB_LOCK):
        raise RunError(f"a batch job is running in {run}, which was not deleted; cancel the job first")
    hidden = run.with_name(f".deleted-{os.getpid()}-{run.name}"[:255])
    try:
        run.rename(hidden)
    except OSError as error:
        raise RunError(f"{run} cannot be deleted: {error.strerror or error}") from error
    try:
        shutil.rmtree(hidden)
    except OSError as error:
        problem = f"its files in {hidden} cannot be deleted: {problem_of(error, hidden)}"
        raise RunError(f"{run} is no run any more, but {problem}") from error

"""Cancel: ends jobs of a batch, and asks a training or a job to stop, as files that any node reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.job.failures import command_again
from marlnb.batch.job.job import JOB, Job
from marlnb.errors import RunError
from marlnb.training.control import ask
from marlnb.training.runs.files import LOCK, is_run
from marlnb.training.runs.lock import is_locked

OVER = ("complete", "failed", "stopped")


def cancel(batch: Batch, names: Sequence[str] = ()) -> dict[str, str]:
    """Ends jobs, all that have not ended without `names`; says of each what happens.

    Raises:
        BatchError: a name that the batch does not have; the scheduler refused.
    """
    asked = [batch.job(name) for name in names] or batch.jobs()
    if not names and batch.then is not None:
        asked.append(batch.report_job())
    statuses = {job.name: job.status() for job in asked}
    jobs = [job for job in asked if statuses[job.name].state not in OVER]
    told = {job.name: "saves and ends" if job.is_held else "does not begin" for job in jobs}
    if names:
        told |= {name: f"is {statuses[name].state} already" for name in names if name not in told}
    elif set(told) <= {REPORT}:
        return {}
    if jobs:
        batch.executor().cancel(batch, jobs)
        batch.log_event(f"cancelled {len(jobs)} jobs: {', '.join(job.name for job in jobs[:10])}")
    return told


def stop(folder: str | os.PathLike[str]) -> str:
    """Asks the training, or the job, in a folder to save and end; returns in words what will happen.

    Raises:
        RunError: the folder is neither a run nor a job, or nothing runs there.
    """
    path = Path(folder).expanduser().absolute()
    job = Job.open(path) if (path / JOB).is_file() else None
    if job is None and not is_run(path):
        raise RunError(f"{path} is neither a run nor a job: it has no experiment.json and no {JOB}")
    if job is not None and job.is_held:
        ask(path, "stop")
        return (
            f"job {job.name} stops within seconds: a training that goes on is saved after its iteration, other cells "
            f"are ended and done again; to go on: {command_again(job)}"
        )
    if is_locked(path / LOCK):
        ask(path, "stop")
        return f"the training stops after its iteration, saved; `marlnb resume {path}` goes on"
    hint = ": a job that is queued is ended by `marlnb cancel BATCH JOB`" if job is not None else ""
    raise RunError(f"nothing runs in {path}{hint}")

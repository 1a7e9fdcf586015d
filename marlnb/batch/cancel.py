"""Cancel jobs of a batch, and ask a run or a job to stop; the requests are files, so any node can read them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.executor import executor_of
from marlnb.batch.job.failures import rerun_command
from marlnb.batch.job.job import JOB, Job
from marlnb.display.formatting import count, marlnb_command
from marlnb.errors import RunError
from marlnb.paths import expanded
from marlnb.training.control import request
from marlnb.training.runs.files import LOCK, is_run
from marlnb.training.runs.lock import is_locked


def cancel(batch: Batch, names: Sequence[str] = ()) -> dict[str, str]:
    """Ends jobs; returns by name what happens to each.

    Args:
        names: of the jobs to end; empty: all that have not ended.
    Raises:
        BatchError: the batch has no such job, or the scheduler refused.
    """
    requested = [batch.job(name) for name in names] or batch.jobs()
    if not names and batch.then is not None:
        requested.append(batch.report_job())
    statuses = {job.name: job.status() for job in requested}
    jobs = [job for job in requested if statuses[job.name].state not in ("complete", "failed", "stopped")]
    effects = {job.name: "saves and ends" if job.is_executing else "will not start" for job in jobs}
    if names:
        effects |= {name: f"is already {statuses[name].state}" for name in names if name not in effects}
    elif set(effects) <= {REPORT}:
        return {}
    if jobs:
        executor_of(batch).cancel(batch, jobs)
        batch.log_event(f"cancelled {count(len(jobs), 'job')}: {', '.join(job.name for job in jobs[:10])}")
    return effects


def stop(folder: str | os.PathLike[str]) -> str:
    """Asks the training, or the job, in a folder to save and end; returns what will happen, in words.

    Raises:
        RunError: the folder is neither a run nor a job, or nothing runs there.
    """
    path = expanded(folder).absolute()
    job = Job.open(path) if (path / JOB).is_file() else None
    if job is None and not is_run(path):
        raise RunError(
            f"{path} is neither a run nor a job: it has no experiment.json and no {JOB}; give the folder of one"
        )
    if job is not None and job.is_executing:
        request(path, "stop")
        return (
            f"job {job.name} stops within seconds: a training run saves after its current iteration, any other cell is "
            f"ended and runs again later; to continue: {rerun_command(job)}"
        )
    if is_locked(path / LOCK):
        request(path, "stop")
        return f"the training saves and stops after its current iteration; to resume: {marlnb_command('resume', path)}"
    hint = "; to end a queued job: marlnb cancel BATCH JOB" if job is not None else ""
    raise RunError(f"nothing runs in {path}{hint}")

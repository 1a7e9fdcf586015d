"""Executes one job: `python -m marlnb.batch.job.run_job FOLDER`. Every executor runs jobs by this command.

An array's task knows its job by number: `python -m marlnb.batch.job.run_job --submission FOLDER --index N`.

Exit codes: 0 complete; 1 a cell failed; 2 a bad request, nothing was executed; 75 interrupted by a signal or a kill,
to be run again; 130 stopped on request. Run again, the same command goes on with what was interrupted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from marlnb.batch.job.attempt import Attempt, scheduler_id
from marlnb.batch.job.failures import describe_failure
from marlnb.batch.job.job import JOB_LOCK, Job, JobStatus, State
from marlnb.batch.job.signals import OUT_OF_TIME, Interruption, Requests
from marlnb.errors import BatchError, MarlnbError, RunError
from marlnb.training.runs.files import read_json
from marlnb.training.runs.lock import RunLock, read_holder

EXIT_CODES: Mapping[State, int] = {
    "complete": 0,
    "failed": 1,
    "interrupted": os.EX_TEMPFAIL,
    "stopped": 130,
}
BAD_REQUEST = 2
REQUEUE_TIMEOUT_S = 20


def execute_job(job: Job, *, bar: bool = False) -> JobStatus:
    """Executes a job in this process and says how that ended; also in the job's files.

    Args:
        bar: show a progress bar on stderr.
    Raises:
        BatchError, ConfigError: it is being executed by another process, or cannot be executed; nothing has run.
    """
    with _holding(job), Attempt(job) as attempt, Requests(job.folder, attempt.say) as requests:
        attempt.looks.append(requests.look)
        try:
            status = _execute(attempt, requests, bar)
        except Interruption as interruption:
            status = attempt.end("stopped" if requests.stopped else "interrupted", str(interruption))
        except MarlnbError as error:
            attempt.end("failed", f"{type(error).__name__}: {error}")
            raise
        if status.state == "interrupted" and status.reason in ("SIGUSR1", OUT_OF_TIME):
            answer = requeue()
            if answer:
                attempt.say(answer)
        return status


def _execute(attempt: Attempt, requests: Requests, bar: bool) -> JobStatus:
    from marlnb.batch.job.execute_notebook import (
        NOTEBOOK,
        run_notebook,
    )  # papermill takes a while to import: say first that it goes on

    outcome = run_notebook(attempt, requests, bar=bar)
    if requests.signal in ("", "SIGINT"):  # after the others a scheduler kills within seconds
        _finish(attempt, attempt.job.folder / NOTEBOOK)
    status = attempt.end(*outcome)
    if status.state == "failed":
        attempt.print(describe_failure(attempt.job, status) + "\n")
    return status


def _finish(attempt: Attempt, notebook: Path) -> None:
    """The HTML copy, and the signature with which Jupyter shows the notebook's widgets."""
    from marlnb.batch.job.html_export import sign, write_html

    if not notebook.exists():
        return
    try:
        write_html(notebook)
    except Exception as error:  # whatever a figure or a template can do, the job's result is there without it
        attempt.say(f"no HTML copy of {notebook.name}: {type(error).__name__}: {error}")
    complaint = sign(notebook)
    if complaint:
        attempt.say(complaint)


def requeue() -> str:
    """Asks SLURM to run this job again, after a warning of the time limit; says what went wrong, if anything did."""
    job = scheduler_id()
    if not job:
        return ""
    try:
        done = subprocess.run(
            ["scontrol", "requeue", job], capture_output=True, text=True, timeout=REQUEUE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"SLURM was not asked to run {job} again: {error}; `marlnb batch` on the same folder does"
    if done.returncode:
        return f"SLURM would not run {job} again: {done.stderr.strip()}; `marlnb batch` on the same folder does"
    return f"SLURM will run {job} again"


@contextmanager
def _holding(job: Job) -> Iterator[None]:
    try:
        lock = RunLock(job.folder / JOB_LOCK)
    except RunError:
        holder = read_holder(job.folder / JOB_LOCK)
        raise BatchError(
            f"{job.folder} is being executed already, by process {holder.get('pid', '?')} on {holder.get('host', '?')}"
        ) from None
    except OSError as error:
        raise BatchError(f"{job.folder} cannot be written: {error.strerror or error}") from error
    with lock:
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; everything that is printed, by the kernel as well, goes to the job's log."""
    parser = argparse.ArgumentParser(prog="python -m marlnb.batch.job.run_job", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folder", nargs="?", help="a job's folder, which holds job.json")
    parser.add_argument("--submission", metavar="FOLDER", help="instead: a submission's folder, which holds jobs.json")
    parser.add_argument("--index", type=int, metavar="N", help="which of the submission's jobs, counted from 0")
    asked = parser.parse_args(arguments)
    if (asked.folder is None) == (asked.submission is None) or (asked.submission is None) != (asked.index is None):
        parser.error("a job's folder is needed, or --submission with --index")
    os.umask(0o077)  # what the notebook writes is its user's own too
    try:
        job = Job.open(asked.folder or _indexed(Path(asked.submission), asked.index))
        _print_to(job.log)
        status = execute_job(job)
    except MarlnbError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return BAD_REQUEST
    return EXIT_CODES[status.state]


def _indexed(submission: Path, index: int) -> Path:
    """The folder of a submission's job: so a scheduler's task is told a number, and no name passes through a shell."""
    from marlnb.batch.batch import JOBS, REPORT

    names = read_json(submission / "jobs.json")["jobs"]
    if not 0 <= index < len(names):
        raise BatchError(f"{submission / 'jobs.json'} has no job {index}; it has {len(names)}, counted from 0")
    batch = submission.parent.parent
    return batch / REPORT if names[index] == REPORT else batch / JOBS / names[index]


def _print_to(log: Path) -> None:
    """Points stdout and stderr of this process and its children at a file."""
    sys.stdout.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())

"""Executes one job: `python -m marlnb.batch.job.run_job FOLDER`. Every executor runs jobs with this command.

A task of a SLURM array finds its job by number: `python -m marlnb.batch.job.run_job --submission FOLDER --index N`. It
does not execute a job that is complete, as one that another submission has executed.

Exit codes: 0 complete; 1 a cell failed; 2 bad request, nothing was executed; 75 interrupted by a signal or a kill, to
be run again; 130 stopped on request. The same command continues an interrupted job.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from marlnb.allocations import scheduler_id
from marlnb.batch.job.attempt import Attempt
from marlnb.batch.job.failures import describe_failure
from marlnb.batch.job.job import JOB_LOCK, Job, JobState, JobStatus
from marlnb.batch.job.signals import OUT_OF_TIME, Interruption, StopRequests
from marlnb.batch.submission import SUBMITTED, Submission
from marlnb.disk import open_log, problem_of
from marlnb.errors import BatchError, MarlnbError, RunError
from marlnb.training.runs.lock import RunLock, read_holder

EXIT_CODES: Mapping[JobState, int] = {"complete": 0, "failed": 1, "interrupted": os.EX_TEMPFAIL, "stopped": 130}
BAD_REQUEST = 2
REQUEUE_TIMEOUT_S = 20


def execute_job(job: Job, *, bar: bool = False, requeues: bool = False) -> JobStatus:
    """Executes a job in this process; returns its last status, which is also in the job's files.

    Args:
        bar: show a progress bar on stderr.
        requeues: whether this process is what SLURM started for the job, so that SLURM is asked to run it again after
            a time limit. In a session of a user, as JupyterHub's, SLURM would run the session again.
    Raises:
        BatchError, ConfigError: another process executes it, or it cannot be executed; nothing has run.
    """
    with _lock(job), Attempt(job) as attempt, StopRequests(job.folder, attempt.say) as requests:
        attempt.callbacks.append(requests.poll)
        try:
            status = _execute(attempt, requests, bar)
        except Interruption as interruption:
            status = attempt.end("stopped" if requests.stopped else "interrupted", str(interruption))
        except MarlnbError as error:
            attempt.end("failed", f"{type(error).__name__}: {error}")
            raise
        is_out_of_time = status.state == "interrupted" and status.reason in ("SIGUSR1", OUT_OF_TIME)
        if requeues and is_out_of_time and (message := requeue()):
            attempt.say(message)
        return status


def _execute(attempt: Attempt, requests: StopRequests, bar: bool) -> JobStatus:
    # papermill is slow to import: by now the attempt has written that it runs
    skip_url_grammar()
    from marlnb.batch.job.execute_notebook import NOTEBOOK, execute_notebook

    outcome = execute_notebook(attempt, requests, bar=bar)
    if requests.signal in ("", "SIGINT"):  # after other signals a scheduler kills within seconds
        _export(attempt, attempt.job.folder / NOTEBOOK)
    status = attempt.end(*outcome)
    if status.state == "failed":
        attempt.print(describe_failure(attempt.job, status) + "\n")
    return status


def skip_url_grammar() -> None:
    """Halves the start of a job: jsonschema, on import, builds a grammar of international URLs for more than a second.

    It does without where the grammar's package is missing. The schema of notebooks has no such URLs.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def _export(attempt: Attempt, notebook: Path) -> None:
    """Writes the HTML copy, and the signature with which Jupyter shows the notebook's widgets."""
    from marlnb.batch.job.html_export import sign, write_html

    if not notebook.exists():
        return
    try:
        write_html(notebook)
    except Exception as error:  # a figure or template may raise anything; the job's result does not depend on it
        attempt.say(f"no HTML copy of {notebook.name}: {type(error).__name__}: {error}")
    if problem := sign(notebook):
        attempt.say(problem)


def requeue() -> str:
    """Asks SLURM to run this job again after a time limit; returns what happened, empty without SLURM."""
    job = scheduler_id()
    if not job:
        return ""
    words = ["scontrol", "requeue", job]
    try:
        process = subprocess.run(words, capture_output=True, text=True, timeout=REQUEUE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"SLURM was not asked to run {job} again: {error}; `marlnb batch BATCH` runs it again"
    if process.returncode:
        return f"SLURM refused to run {job} again: {process.stderr.strip()}; `marlnb batch BATCH` runs it again"
    return f"SLURM will run {job} again"


def _lock(job: Job) -> RunLock:
    try:
        return RunLock(job.folder / JOB_LOCK)
    except RunError:
        holder = read_holder(job.folder / JOB_LOCK)
        raise BatchError(
            f"process {holder.get('pid', '?')} on {holder.get('host', '?')} already executes {job.folder}; wait for "
            "it, or stop it with `marlnb stop`"
        ) from None
    except OSError as error:
        raise BatchError(f"the job's folder {job.folder} cannot be written: {problem_of(error, job.folder)}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; all output, also the kernel's, goes to the job's log."""
    parser = argparse.ArgumentParser(prog="python -m marlnb.batch.job.run_job", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("folder", nargs="?", help="a job's folder, which holds job.json")
    help_submission = "instead of FOLDER: a submission's folder, which holds jobs.json"
    parser.add_argument("--submission", metavar="FOLDER", help=help_submission)
    parser.add_argument("--index", type=int, metavar="N", help="number of the job in the submission, from 0")
    options = parser.parse_args(arguments)
    is_task = options.submission is not None
    if (options.folder is None) != is_task or (options.index is not None) != is_task:
        parser.error("give a job's folder, or --submission with --index")
    os.umask(0o077)  # what the notebook writes is private to its user too
    first_stderr = os.dup(2)  # not inherited
    try:
        job = Job.open(options.folder or _indexed(Path(options.submission), options.index))
        _redirect_output(job.log)
        if is_task and _is_complete(job):
            print(f"job {job.name} is complete and is not executed again", flush=True)
            return EXIT_CODES["complete"]
        status = execute_job(job, requeues=True)
    except MarlnbError as error:
        _print_error(f"{type(error).__name__}: {error}\n", first_stderr)
        return BAD_REQUEST
    finally:
        os.close(first_stderr)
    return EXIT_CODES[status.state]


def _indexed(submission: Path, index: int) -> Path:
    """The folder of a submission's job. A scheduler's task gets a number, so no job name passes through a shell."""
    from marlnb.batch.batch import JOBS, REPORT

    names = Submission.read(submission).jobs
    if not 0 <= index < len(names):
        raise BatchError(f"{submission / SUBMITTED} has no job {index}; valid: 0 to {len(names) - 1}")
    batch = submission.parent.parent
    return batch / REPORT if names[index] == REPORT else batch / JOBS / names[index]


def _is_complete(job: Job) -> bool:
    """Whether a task has nothing to do. The report is executed again: it shows what the jobs are now."""
    from marlnb.batch.batch import REPORT

    return job.name != REPORT and job.status().state == "complete"


def _redirect_output(log: Path) -> None:
    """Redirects stdout and stderr of this process and its children to a file. Raises DiskError: the disk refuses."""
    sys.stdout.flush()
    with open_log(log) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _print_error(text: str, first_stderr: int) -> None:
    """Prints to the log, or where its disk is full to what was stderr before."""
    sys.stderr.flush()
    for descriptor in (2, first_stderr):
        with suppress(OSError):
            if os.write(descriptor, text.encode(errors="replace")):
                return


if __name__ == "__main__":
    sys.exit(main())

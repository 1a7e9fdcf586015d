"""Executes a notebook into a run folder: `python -m marlnb.batch.job.execute NOTEBOOK --out RUN -p key=value`.

The executed notebook and its HTML copy land beside the run that it made, and beside the job's own files: this is a
batch of one, executed here and now. Interrupted, by Ctrl-C or a signal, it asks a training to stop and save; the same
command then goes on from there, since a notebook opens the run that it finds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papermill.exceptions import PapermillExecutionError

from marlnb.batch.job.execute_notebook import NOTEBOOK
from marlnb.batch.job.failures import describe_failure
from marlnb.batch.job.html_export import write_html as write_html
from marlnb.batch.job.job import JOB, JOB_LOCK, Job, JobStatus
from marlnb.batch.job.run_job import BAD_REQUEST, EXIT_CODES, execute_job
from marlnb.batch.sweep.parameters import checked_parameters, parse_parameters
from marlnb.errors import BatchError, MarlnbError, RunError, StoppedError
from marlnb.training.runs.files import is_run, may_precede
from marlnb.training.runs.lock import is_locked

STOPPED = 130


def execute(
    notebook: str | Path, out: str | Path, parameters: Mapping[str, Any] | None = None, *, progress: bool = True
) -> Path:
    """Runs a notebook from top to bottom and returns the path of the executed copy, `<out>/notebook.ipynb`.

    Both copies (`notebook.html` is the other) are written even when a cell fails. A parameter `run` of the notebook is
    set to `out`. The kernel is reached over ipc: nothing of it can be seen from the network.

    Args:
        parameters: plain JSON values by name, for the notebook's cell tagged `parameters`.
    Raises:
        ConfigError: no such notebook, or a parameter that it does not have; nothing has run.
        RunError: the folder holds something that is no run.
        BatchError: it is being executed already.
        PapermillExecutionError: a cell failed.
        StoppedError: asked to stop by the file STOP, or its kernel was killed; run again, it goes on.
        KeyboardInterrupt: a signal ended it; run again, it goes on.
    """
    job = make_job(notebook, out, parameters)
    status = execute_job(job, bar=progress)
    if status.state == "complete":
        return job.folder / NOTEBOOK
    if status.error is not None:
        error = status.error
        raise PapermillExecutionError(
            error.cell - 1, None, error.source, error.name, error.message, error.traceback.splitlines()
        )
    if status.reason.startswith("SIG"):
        raise KeyboardInterrupt(status.reason)
    raise StoppedError(f"{job.folder}: {status.state}, {status.reason}; executed again, it goes on")


def make_job(notebook: str | Path, out: str | Path, parameters: Mapping[str, Any] | None = None) -> Job:
    """A notebook and its values as a job in the folder `out`, in place of one that is there and not being executed.

    Raises:
        ConfigError, RunError, BatchError: as `execute` does.
    """
    source, folder = Path(notebook).expanduser().absolute(), Path(out).expanduser().absolute()
    given = {} if parameters is None else dict(parameters)
    checked_parameters(source, given, folder)
    _check_folder(folder)
    if is_locked(folder / JOB_LOCK):
        raise BatchError(f"{folder} is being executed already; {folder / 'output.log'} says how far it is")
    (folder / JOB).unlink(missing_ok=True)  # what was asked of this folder before; the run in it is opened if it fits
    job = Job(folder, source, given, Path.cwd())
    job.write()
    return job


def _check_folder(folder: Path) -> None:
    if folder.is_dir() and not is_run(folder):
        found = sorted(path.name for path in folder.iterdir() if not may_precede(path.name))
        if found:
            raise RunError(f"{folder} is there already and holds {', '.join(found[:5])}, but no run; give another name")
    elif folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give the name of a folder")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 when every cell ran, 1 when one failed, 2 for a bad request, 75 or 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m marlnb.batch.job.execute", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("notebook", help="the notebook to execute")
    parser.add_argument(
        "--out", required=True, metavar="RUN", help="the run folder; an interrupted one is gone on with"
    )
    parser.add_argument(
        "-p", "--parameter", action="append", default=[], metavar="KEY=VALUE", help="a value for the parameters cell"
    )
    asked = parser.parse_args(arguments)
    os.umask(0o077)
    try:
        job = make_job(asked.notebook, asked.out, parse_parameters(asked.parameter))
        status = execute_job(job, bar=True)
    except MarlnbError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return BAD_REQUEST
    return _end(job, status)


def _end(job: Job, status: JobStatus) -> int:
    executed = job.folder / NOTEBOOK
    if status.state == "complete":
        print(f"{executed}\n{executed.with_suffix('.html')}")
        return 0
    if status.state == "failed":
        print(f"{describe_failure(job, status)}\n{executed} shows it", file=sys.stderr)
    else:
        print(f"{status.state} ({status.reason}); the same command goes on with {job.folder}", file=sys.stderr)
    return STOPPED if status.reason == "SIGINT" else EXIT_CODES[status.state]


if __name__ == "__main__":
    sys.exit(main())

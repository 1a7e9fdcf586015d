"""Executes a notebook into a run folder: `python -m marlnb.batch.job.execute NOTEBOOK --out RUN -p key=value`.

This is a batch of one job, executed at once. The executed notebook and its HTML copy are written next to the run that
it makes and to the job's own files. After Ctrl-C or a signal a training run saves and stops; the same command then
continues, since the notebook opens the run in its folder.
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
from marlnb.batch.job.job import JOB, JOB_LOCK, Job
from marlnb.batch.job.run_job import BAD_REQUEST, EXIT_CODES, execute_job
from marlnb.batch.sweep.parameters import find_kernel, job_parameters, parse_parameters
from marlnb.errors import BatchError, MarlnbError, RunError, StoppedError
from marlnb.paths import expanded
from marlnb.training.runs.files import is_run, may_precede
from marlnb.training.runs.lock import is_locked


def execute(
    notebook: str | Path, out: str | Path, parameters: Mapping[str, Any] | None = None, *, progress: bool = True
) -> Path:
    """Executes a notebook from top to bottom; returns the path of the executed copy, `<out>/notebook.ipynb`.

    The executed copy and `notebook.html` are written even when a cell fails. If the notebook has a parameter `run`, it
    is set to `out`. The kernel communicates over ipc and cannot be reached from the network.

    Args:
        notebook: path of the notebook.
        out: the run's folder.
        parameters: JSON values by name, for the notebook's cell tagged `parameters`.
        progress: show a progress bar.
    Raises:
        ConfigError: no such notebook or parameter, or the notebook names no kernel; nothing has run.
        RunError: the folder holds something other than a run.
        BatchError: another process executes it.
        PapermillExecutionError: a cell failed.
        StoppedError: stopped by the file STOP, or its kernel was killed; a second call continues.
        KeyboardInterrupt: ended by a signal; a second call continues.
    """
    job = make_job(notebook, out, parameters)
    status = execute_job(job, bar=progress)
    if status.state == "complete":
        return job.folder / NOTEBOOK
    if status.error is not None:
        error, lines = status.error, status.error.traceback.splitlines()
        raise PapermillExecutionError(error.cell - 1, None, error.source, error.name, error.message, lines)
    if status.reason.startswith("SIG"):
        raise KeyboardInterrupt(status.reason)
    raise StoppedError(f"{job.folder}: {status.state}, {status.reason}; execute it again to continue")


def make_job(notebook: str | Path, out: str | Path, parameters: Mapping[str, Any] | None = None) -> Job:
    """Makes a job in the folder `out`, and replaces a job there that is not being executed.

    Raises:
        ConfigError, RunError, BatchError: as `execute` does.
    """
    source, folder = expanded(notebook).absolute(), expanded(out).absolute()
    values = {} if parameters is None else dict(parameters)
    job_parameters(source, values, folder)
    find_kernel(source)
    if folder.is_dir() and not is_run(folder):
        if names := sorted(path.name for path in folder.iterdir() if not may_precede(path.name)):
            listed = ", ".join(names[:5])
            raise RunError(f"{folder} already exists and is not a run: it holds {listed}; give another name")
    elif folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give the name of a folder")
    if is_locked(folder / JOB_LOCK):
        raise BatchError(f"another process already executes {folder}; its progress is in {folder / 'output.log'}")
    (folder / JOB).unlink(missing_ok=True)  # the previous job of this folder; its run is opened if it fits
    job = Job(folder, source, values, Path.cwd())
    job.write()
    return job


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0 if every cell ran, 1 if one failed, 2 for a bad request, 75 or 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m marlnb.batch.job.execute", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    add = parser.add_argument
    add("notebook", help="the notebook to execute")
    add("--out", required=True, metavar="RUN", help="the run's folder; an interrupted run continues")
    add("-p", "--parameter", action="append", default=[], metavar="KEY=VALUE", help="a value for the parameters cell")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    try:
        job = make_job(options.notebook, options.out, parse_parameters(options.parameter))
        status = execute_job(job, bar=True)
    except MarlnbError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return BAD_REQUEST
    executed = job.folder / NOTEBOOK
    if status.state == "complete":
        print(f"{executed}\n{executed.with_suffix('.html')}")
        return 0
    if status.state == "failed":
        print(f"{describe_failure(job, status)}\nsee {executed}", file=sys.stderr)
    else:
        print(f"{status.state} ({status.reason}); the same command continues with {job.folder}", file=sys.stderr)
    return EXIT_CODES["stopped"] if status.reason == "SIGINT" else EXIT_CODES[status.state]


if __name__ == "__main__":
    sys.exit(main())

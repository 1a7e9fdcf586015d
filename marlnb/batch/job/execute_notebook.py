"""Execute a job's notebook cell by cell in its own kernel, with papermill.

In addition to what papermill does: the kernel communicates over ipc, ignores signals meant for the job and ends with
the process that started it; the executed notebook is replaced atomically; what cells print also goes to the job's log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.engines import NotebookExecutionManager
from papermill.execute import prepare_notebook_metadata, remove_error_markers
from papermill.iorw import load_notebook_node
from papermill.log import logger
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config

from marlnb.batch.job.attempt import Attempt
from marlnb.batch.job.kernel_client import KernelClient, short_runtime_folder
from marlnb.batch.job.outcome import KILL_SIGNALS, KILLED, Outcome, mark_error, outcome_of, outcome_of_death
from marlnb.batch.job.signals import Interruption, StopRequests
from marlnb.batch.sweep.parameters import find_kernel, job_parameters
from marlnb.errors import BatchError
from marlnb.training.runs.files import JOB_VARIABLE, write_atomically

NOTEBOOK = "notebook.ipynb"
START_TIMEOUT_S = 120


def execute_notebook(attempt: Attempt, requests: StopRequests, *, bar: bool = False) -> Outcome:
    """Executes an attempt's notebook into `notebook.ipynb` of the job's folder.

    Args:
        bar: show papermill's progress bar on stderr.
    Raises:
        ConfigError: no such notebook or parameter, or the notebook names no kernel; nothing has run.
        BatchError: the working folder does not exist, or the kernel does not start.
    """
    job = attempt.job
    if not job.cwd.is_dir():
        raise BatchError(
            f"the working folder {job.cwd} of {job.notebook} does not exist; create it, or submit the notebook "
            "again, from the folder in which it should run"
        )
    target = job.folder / NOTEBOOK
    parameters = job_parameters(job.notebook, job.parameters, job.folder)
    kernel = find_kernel(job.notebook)
    notebook = load_notebook_node(str(job.notebook))
    if parameters:
        notebook = parameterize_notebook(notebook, parameters, kernel_name=kernel, language="python")
    notebook = remove_error_markers(prepare_notebook_metadata(notebook, str(job.notebook), str(target)))
    manager = _ExecutionManager(notebook, target, attempt, requests, bar)
    client = KernelClient(
        manager,
        kernel_name=kernel,
        timeout=None,
        startup_timeout=START_TIMEOUT_S,
        iopub_timeout=START_TIMEOUT_S,  # 4 s by default, after which papermill fails the cell
        log=logger,
        log_output=True,
        config=Config({"KernelManager": {"transport": "ipc"}}),
    )
    manager.notebook_start()
    try:
        with short_runtime_folder() as sockets:
            # by default the sockets are named kernel-ipc-1 in the working folder, which several jobs share
            client.config.KernelManager.connection_file = f"{sockets}/kernel.json"
            client.execute_as_job(job.cwd, {**os.environ, **job.environment, JOB_VARIABLE: str(job.folder)})
    except Interruption as interruption:
        return Outcome("stopped" if requests.stopped else "interrupted", str(interruption))
    except DeadKernelError:
        return outcome_of_death(client.exit_code, notebook, attempt.status.cell, requests)
    except RuntimeError as error:  # nbclient raises it when a kernel died before it was ready
        if requests.pending:
            return Outcome("stopped" if requests.stopped else "interrupted", requests.reason)
        if client.exit_code is not None and -client.exit_code in KILL_SIGNALS:
            return Outcome("interrupted", KILLED)
        raise BatchError(
            f"the kernel {client.kernel_name!r} did not start: {error}; `marlnb doctor NOTEBOOK` finds out why"
        ) from error
    finally:
        requests.armed = False
        manager.cleanup_pbar()
        manager.notebook_complete()
    outcome = outcome_of(notebook, requests)
    if outcome.error is not None:
        mark_error(notebook, outcome.error)
        manager.save()
    return outcome


class _ExecutionManager(NotebookExecutionManager):
    """papermill's execution manager, which writes the notebook atomically and reports each cell to the attempt."""

    def __init__(self, nb: NotebookNode, target: Path, attempt: Attempt, requests: StopRequests, bar: bool) -> None:
        super().__init__(nb, output_path=str(target), progress_bar=bar)
        self.target, self.attempt, self.requests = target, attempt, requests

    def save(self, **kwargs: Any) -> None:
        write_atomically(self.target, nbformat.writes(self.nb) + "\n", sync=False)
        self.last_save_time = self.now()

    def cell_start(self, cell: NotebookNode, cell_index: int | None = None, **kwargs: Any) -> None:
        if self.requests.pending:
            raise Interruption(self.requests.reason)
        number = (cell_index or 0) + 1
        title = _title(self.nb.cells[:number])
        self.attempt.start_cell(number, len(self.nb.cells), title, is_code=cell.cell_type == "code")
        super().cell_start(cell, cell_index, **kwargs)

    def cell_exception(self, cell: NotebookNode, cell_index: int | None = None, **kwargs: Any) -> None:
        super().cell_exception(cell, cell_index, **kwargs)
        error: CellExecutionError = kwargs["exception"]
        if not any(output.output_type == "error" for output in cell.outputs):  # IPython prints exception groups as text
            line = f"{error.ename}: {error.evalue}"
            cell.outputs.append(new_output("error", ename=error.ename, evalue=error.evalue, traceback=[line]))


def _title(cells: list[NotebookNode]) -> str:
    """The heading above the last of these cells; empty without one."""
    lines = [line for cell in cells if cell.cell_type == "markdown" for line in cell.source.splitlines()]
    return next((line.lstrip("#").strip() for line in reversed(lines) if line.startswith("#")), "")

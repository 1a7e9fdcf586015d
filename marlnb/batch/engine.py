"""The engine: a job's notebook executed cell by cell in a kernel of its own, through papermill.

Beside what papermill does: the kernel is reached over ipc, and outlives neither signals meant for the job nor the
process that began it; the executed notebook is replaced atomically; what cells print goes to the job's log as well.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from jupyter_core.utils import run_sync
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NotebookExecutionManager
from papermill.execute import (
    ERROR_ANCHOR_MSG,
    ERROR_MARKER_TAG,
    ERROR_MESSAGE_TEMPLATE,
    prepare_notebook_metadata,
    remove_error_markers,
)
from papermill.iorw import load_notebook_node
from papermill.log import logger
from papermill.parameterize import parameterize_notebook
from papermill.utils import nb_kernel_name
from traitlets.config import Config

from marlnb.batch.attempt import Attempt
from marlnb.batch.job import CellError, State
from marlnb.batch.parameters import checked_parameters
from marlnb.batch.requests import OUT_OF_TIME, Interruption, Requests
from marlnb.errors import BatchError
from marlnb.training.files import JOB_VARIABLE, write_atomically

NOTEBOOK = "notebook.ipynb"
START_TIMEOUT_S = 120
LONGEST_TRACEBACK = 40  # lines
IGNORED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = "the kernel died (killed, or out of memory)"
PR_SET_PDEATHSIG = 1
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Outcome(NamedTuple):
    """How an execution ended."""

    state: State
    reason: str = ""
    error: CellError | None = None


def run_notebook(attempt: Attempt, requests: Requests, *, bar: bool = False) -> Outcome:
    """Executes an attempt's notebook into `notebook.ipynb` of the job's folder.

    Args:
        bar: show papermill's progress bar on stderr.
    Raises:
        ConfigError: no such notebook, or a parameter that it does not have; nothing has run.
        BatchError: the folder in which it should be executed is not there, or the kernel does not start.
    """
    job = attempt.job
    if not job.cwd.is_dir():
        raise BatchError(f"{job.cwd}, in which {job.notebook} should be executed, is not there")
    target = job.folder / NOTEBOOK
    parameters = checked_parameters(job.notebook, job.parameters, job.folder)
    notebook = _prepared(job.notebook, target, parameters)
    keeper = _Keeper(notebook, target, attempt, requests, bar)
    client = _Client(
        keeper,
        kernel_name=nb_kernel_name(notebook),
        timeout=None,
        startup_timeout=START_TIMEOUT_S,
        log=logger,
        log_output=True,
        config=Config({"KernelManager": {"transport": "ipc"}}),
    )
    keeper.notebook_start()
    try:
        with _short_runtime_folder() as sockets:
            # without it the sockets are called kernel-ipc-1 in the working folder, which several jobs share
            client.config.KernelManager.connection_file = f"{sockets}/kernel.json"
            client.execute_as_job(job.cwd, {**os.environ, **job.environment, JOB_VARIABLE: str(job.folder)})
    except Interruption as interruption:
        return Outcome("stopped" if requests.stopped else "interrupted", str(interruption))
    except DeadKernelError:
        return _died(client.exit_code, notebook, attempt.status.cell, requests)
    except RuntimeError as error:  # as nbclient says that a kernel died before it was ready
        if requests.pending:
            return Outcome("stopped" if requests.stopped else "interrupted", requests.reason)
        if client.exit_code is not None and -client.exit_code in KILLS:
            return Outcome("interrupted", KILLED)
        raise BatchError(f"the kernel {client.kernel_name!r} did not start: {error}") from error
    finally:
        requests.armed = False
        keeper.cleanup_pbar()
        keeper.notebook_complete()
    outcome = _outcome(notebook, requests)
    if outcome.error is not None:
        _mark(notebook, outcome.error)
        keeper.save()
    return outcome


class _Keeper(NotebookExecutionManager):
    """papermill's keeper of the executed notebook; it is replaced atomically, and the attempt is told of each cell."""

    def __init__(self, nb: NotebookNode, target: Path, attempt: Attempt, requests: Requests, bar: bool) -> None:
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
        self.attempt.begin_cell(number, len(self.nb.cells), title, is_code=cell.cell_type == "code")
        super().cell_start(cell, cell_index, **kwargs)


class _CellsDoneError(Exception):
    """Nothing more is wanted of the kernel."""


class _Client(PapermillNotebookClient):
    """papermill's client, whose kernel ends with it, and which passes on what cells print."""

    exit_code: int | None = None
    _process: Any = None

    def execute_as_job(self, cwd: Path, environment: dict[str, str]) -> None:
        """Executes all cells; whatever happens, the kernel is gone afterwards."""
        try:
            with warnings.catch_warnings():  # Python 3.12 warns of a fork beside threads; what follows it takes no lock
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                self.execute(cwd=str(cwd), env=environment, preexec_fn=_prepare_kernel_process)
        except _CellsDoneError:
            return
        finally:
            if self.km is not None:
                self._kill()
                with suppress(Exception):  # it is dead; what remains of it are sockets
                    self._cleanup_kernel()

    async def async_start_new_kernel_client(self) -> Any:
        self._process = self.km.provisioner.process
        try:
            return await super().async_start_new_kernel_client()
        except Exception:
            self.exit_code = self._process.poll()
            raise

    start_new_kernel_client = run_sync(async_start_new_kernel_client)  # nbclient binds its own coroutine

    def papermill_execute_cells(self) -> None:
        try:
            super().papermill_execute_cells()
        except BaseException:
            self.exit_code = self._process.poll()
            self._kill()
            raise
        if self.nb_man.requests.pending:  # a few seconds are all that is left: no farewell to the kernel
            self._kill()
            raise _CellsDoneError

    def process_message(self, msg: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.nb_man.attempt.show(msg["content"].get("data", {}).get("text/plain", ""))
        return super().process_message(msg, *args, **kwargs)

    def log_output_message(self, output: NotebookNode) -> None:
        text = output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")
        if text:
            text = "".join(text)
            self.nb_man.attempt.print(text if text.endswith("\n") else f"{text}\n")

    def _kill(self) -> None:
        process = self._process or getattr(getattr(self.km, "provisioner", None), "process", None)
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _prepare_kernel_process() -> None:
    """Between fork and exec: a scheduler's signals to all processes of a job are for the job's own process alone.

    When that process dies, however it dies, the kernel is killed: otherwise it would train on, unseen.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # elsewhere ipykernel itself looks for its parent


def _prepared(source: Path, target: Path, parameters: dict[str, Any]) -> NotebookNode:
    notebook = load_notebook_node(str(source))
    if parameters:
        notebook = parameterize_notebook(notebook, parameters)
    notebook = prepare_notebook_metadata(notebook, str(source), str(target))
    return remove_error_markers(notebook)


def _outcome(notebook: NotebookNode, requests: Requests) -> Outcome:
    error = _cell_error(notebook)
    if error is None:
        return Outcome("complete")
    if error.name == "AllocationEndsError":
        return Outcome("interrupted", OUT_OF_TIME)
    if error.name == "StoppedError":
        requests.settle()
        return Outcome("stopped" if requests.stopped else "interrupted", requests.reason or "the file STOP")
    return Outcome("failed", f"cell {error.cell}: {error.name}: {error.message}".splitlines()[0], error)


def _cell_error(notebook: NotebookNode) -> CellError | None:
    """The error of the cell that ended the notebook; `sys.exit()` in a cell is none."""
    for index, cell in enumerate(notebook.cells):
        if cell.metadata.get("papermill", {}).get("exception") is not True:
            continue
        errors = [output for output in cell.outputs if output.output_type == "error"]
        if not errors:
            return CellError(index + 1, cell.source, "CellExecutionError", "", "")
        if errors[-1].ename == "SystemExit" and errors[-1].evalue in ("", "0"):
            return None
        lines = _ESCAPES.sub("", "\n".join(errors[-1].traceback)).splitlines()
        traceback = "\n".join(lines[-LONGEST_TRACEBACK:])
        return CellError(index + 1, cell.source, errors[-1].ename, _ESCAPES.sub("", errors[-1].evalue), traceback)
    return None


def _mark(notebook: NotebookNode, error: CellError) -> None:
    """What papermill puts at the top and before the cell that failed, so that a reader finds it."""
    at = error.cell - 1
    anchor = nbformat.v4.new_markdown_cell(ERROR_ANCHOR_MSG, metadata={"tags": [ERROR_MARKER_TAG]})
    text = ERROR_MESSAGE_TEMPLATE % notebook.cells[at].execution_count
    notebook.cells.insert(at, anchor)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(text, metadata={"tags": [ERROR_MARKER_TAG]}))


def _died(exit_code: int | None, notebook: NotebookNode, cell: int, requests: Requests) -> Outcome:
    """A kernel that was killed may do better the next time; one that crashed or left will do so again."""
    if requests.pending:
        return Outcome("stopped" if requests.stopped else "interrupted", requests.reason)
    if exit_code is None or -exit_code in KILLS:
        return Outcome("interrupted", KILLED)
    how = f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"
    source = notebook.cells[cell - 1].source if cell else ""
    reason = f"the kernel ended {how}"
    return Outcome("failed", f"cell {cell}: {reason}", CellError(cell, source, "DeadKernelError", reason, ""))


def _title(cells: list[NotebookNode]) -> str:
    """The heading under which the last of these cells stands."""
    for cell in reversed(cells):
        if cell.cell_type == "markdown":
            headings = [line.lstrip("#").strip() for line in cell.source.splitlines() if line.startswith("#")]
            if headings:
                return headings[-1]
    return ""


@contextmanager
def _short_runtime_folder() -> Iterator[str]:
    """A private folder for the kernel's sockets, whose paths may not be longer than about 100 characters."""
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="marlnb-", ignore_cleanup_errors=True) as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        try:
            yield folder
        finally:
            del os.environ["JUPYTER_RUNTIME_DIR"]
            if before is not None:
                os.environ["JUPYTER_RUNTIME_DIR"] = before

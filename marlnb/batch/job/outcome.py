"""Outcome: how the execution of a notebook ended, from the state of its cells and its kernel."""

from __future__ import annotations

import signal
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode
from papermill.execute import ERROR_ANCHOR_MSG, ERROR_MARKER_TAG, ERROR_MESSAGE_TEMPLATE

from marlnb.batch.job.job import CellError, JobState
from marlnb.batch.job.signals import OUT_OF_TIME, StopRequests
from marlnb.errors import printable

MAX_TRACEBACK_LINES = 40
KILL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = "the kernel died (killed, or out of memory)"


class Outcome(NamedTuple):
    """How an execution ended."""

    state: JobState
    reason: str = ""
    error: CellError | None = None


def outcome_of(notebook: NotebookNode, requests: StopRequests) -> Outcome:
    """The outcome of a notebook whose kernel ended normally."""
    error = _cell_error(notebook)
    if error is None:
        return Outcome("complete")
    if error.name == "AllocationEndsError":
        return Outcome("interrupted", OUT_OF_TIME)
    if error.name == "StoppedError":
        requests.read_stop_reason()
        return Outcome("stopped" if requests.stopped else "interrupted", requests.reason or "the file STOP")
    return Outcome("failed", f"cell {error.cell}: {error.name}: {error.message}".splitlines()[0], error)


def _cell_error(notebook: NotebookNode) -> CellError | None:
    """The error of the cell that ended the notebook; `sys.exit()` in a cell is not an error."""
    for index, cell in enumerate(notebook.cells):
        if cell.metadata.get("papermill", {}).get("exception") is not True:
            continue
        error = [output for output in cell.outputs if output.output_type == "error"][-1]
        if error.ename == "SystemExit" and error.evalue in ("", "0", "None"):
            return None
        lines = printable("\n".join(error.traceback)).splitlines()
        traceback = "\n".join(lines[-MAX_TRACEBACK_LINES:])
        return CellError(index + 1, cell.source, error.ename, printable(error.evalue), traceback)
    return None


def mark_error(notebook: NotebookNode, error: CellError) -> None:
    """Adds papermill's marks at the top of the notebook and before the failed cell."""
    index = error.cell - 1
    anchor = nbformat.v4.new_markdown_cell(ERROR_ANCHOR_MSG, metadata={"tags": [ERROR_MARKER_TAG]})
    text = ERROR_MESSAGE_TEMPLATE % notebook.cells[index].execution_count
    notebook.cells.insert(index, anchor)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(text, metadata={"tags": [ERROR_MARKER_TAG]}))


def outcome_of_death(exit_code: int | None, notebook: NotebookNode, cell: int, requests: StopRequests) -> Outcome:
    """The outcome of a kernel that died: a killed one may succeed the next time, a crashed one would crash again."""
    if requests.pending:
        return Outcome("stopped" if requests.stopped else "interrupted", requests.reason)
    if exit_code is None or -exit_code in KILL_SIGNALS:
        return Outcome("interrupted", KILLED)
    how = f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"
    source = notebook.cells[cell - 1].source if cell else ""
    reason = f"the kernel ended {how}"
    return Outcome("failed", f"cell {cell}: {reason}", CellError(cell, source, "DeadKernelError", reason, ""))

"""Outcome: how the execution of a notebook ended, from what its cells and its kernel left."""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode
from papermill.execute import ERROR_ANCHOR_MSG, ERROR_MARKER_TAG, ERROR_MESSAGE_TEMPLATE

from marlnb.batch.job.job import CellError, State
from marlnb.batch.job.signals import OUT_OF_TIME, Requests

LONGEST_TRACEBACK = 40  # lines
KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILLED = "the kernel died (killed, or out of memory)"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Outcome(NamedTuple):
    """How an execution ended."""

    state: State
    reason: str = ""
    error: CellError | None = None


def outcome_of(notebook: NotebookNode, requests: Requests) -> Outcome:
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


def mark_error(notebook: NotebookNode, error: CellError) -> None:
    """What papermill puts at the top and before the cell that failed, so that a reader finds it."""
    at = error.cell - 1
    anchor = nbformat.v4.new_markdown_cell(ERROR_ANCHOR_MSG, metadata={"tags": [ERROR_MARKER_TAG]})
    text = ERROR_MESSAGE_TEMPLATE % notebook.cells[at].execution_count
    notebook.cells.insert(at, anchor)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(text, metadata={"tags": [ERROR_MARKER_TAG]}))


def outcome_of_death(exit_code: int | None, notebook: NotebookNode, cell: int, requests: Requests) -> Outcome:
    """A kernel that was killed may do better the next time; one that crashed or left will do so again."""
    if requests.pending:
        return Outcome("stopped" if requests.stopped else "interrupted", requests.reason)
    if exit_code is None or -exit_code in KILLS:
        return Outcome("interrupted", KILLED)
    how = f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"
    source = notebook.cells[cell - 1].source if cell else ""
    reason = f"the kernel ended {how}"
    return Outcome("failed", f"cell {cell}: {reason}", CellError(cell, source, "DeadKernelError", reason, ""))

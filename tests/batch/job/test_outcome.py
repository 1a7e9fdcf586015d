"""What the end of a kernel is taken for."""

from __future__ import annotations

import signal
from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.outcome import outcome_of, outcome_of_death
from marlnb.batch.job.signals import StopRequests


@pytest.mark.parametrize(
    ("exit_code", "state", "reason"),
    [
        (-signal.SIGKILL, "interrupted", "killed, or out of memory"),
        (None, "interrupted", "killed, or out of memory"),
        (-signal.SIGSEGV, "failed", "cell 1: the kernel ended by SIGSEGV"),
        (7, "failed", "cell 1: the kernel ended with exit code 7"),
    ],
)
def test_a_kernel_that_was_killed_may_do_better_one_that_crashed_will_not(
    tmp_path: Path, exit_code: int | None, state: str, reason: str
) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("crash()")])
    outcome = outcome_of_death(exit_code, notebook, 1, StopRequests(tmp_path, print))
    assert outcome.state == state and reason in outcome.reason
    assert (outcome.error is not None and outcome.error.source == "crash()") is (state == "failed")


@pytest.mark.parametrize(
    ("value", "state"),
    [("", "complete"), ("0", "complete"), ("None", "complete"), ("1", "failed"), ("no such file", "failed")],
)
def test_an_exit_without_a_code_is_no_failure(tmp_path: Path, value: str, state: str) -> None:
    """`sys.exit()`, `sys.exit(0)` and `raise SystemExit(None)` have the exit code 0."""
    error = nbformat.v4.new_output("error", ename="SystemExit", evalue=value, traceback=[])
    cell = nbformat.v4.new_code_cell("exit()", outputs=[error], metadata={"papermill": {"exception": True}})
    assert outcome_of(nbformat.v4.new_notebook(cells=[cell]), StopRequests(tmp_path, print)).state == state

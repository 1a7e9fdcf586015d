"""What the end of a kernel is taken for."""

from __future__ import annotations

import signal
from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.outcome import outcome_of_death
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

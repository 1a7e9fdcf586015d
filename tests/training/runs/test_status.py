"""What a status says about a failed training run, for a line and for a panel."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from marlnb.training.runs.files import STATUS
from marlnb.training.runs.listing import list_runs
from marlnb.training.runs.run import Run
from marlnb.training.runs.status import error_parts
from marlnb.widgets.runs.run_status import describe_failure
from tests.lab.run_folders import write_run

CAUSE = "ValueError: shapes do not fit:\n  got (3,)\n  expected (4,)"


def _trace() -> str:
    try:
        raise ValueError(CAUSE.removeprefix("ValueError: "))
    except ValueError:
        return traceback.format_exc().rstrip()


@pytest.mark.parametrize(
    ("error", "message", "cause"),
    [
        (CAUSE, CAUSE, ""),
        (f"EnvError: env failed in step 3\n\n{_trace()}", "EnvError: env failed in step 3", CAUSE),
        (f"EnvError: {_trace()}", "EnvError", CAUSE),
        (f"EnvError: closed\n\n{_trace()}\n\nDuring handling:\n\n{_trace()}", "EnvError: closed", CAUSE),
        ("  ", "", ""),
    ],
)
def test_an_error_keeps_all_lines_of_its_message_and_of_its_cause(error: str, message: str, cause: str) -> None:
    assert error_parts(error) == (message, cause)


def test_a_failed_run_says_why_in_its_panel_and_in_the_list_of_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    error = f"EnvError: env failed in step 3\n\n{_trace()}"
    (folder / STATUS).write_text(json.dumps({"state": "failed", "frames": 5, "error": error}))
    run = Run.open(folder)
    lines = describe_failure(run.status(), run).splitlines()
    assert lines[:4] == ["EnvError: env failed in step 3", *CAUSE.splitlines()] and "The log below" in lines[-1]
    assert [row.problem for row in list_runs(tmp_path)] == ["ValueError: shapes do not fit:"]

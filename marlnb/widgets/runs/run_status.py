"""The state of a run as text: one line, and a few lines if it failed or could not start."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from marlnb.display.formatting import format_clock, format_count
from marlnb.errors import MarlnbError
from marlnb.training.runs.run import Run
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.training.runs.status import error_parts, scores_text

STATE_TEXTS = {
    "created": "not started",
    "running": "training",
    "paused": "paused",
    "interrupted": "interrupted: resume from the last checkpoint",
    "stopped": "stopped: resume from the last checkpoint",
    "complete": "complete",
    "failed": "failed: the last checkpoint is intact",
    "missing": "missing: the folder was deleted or moved",
}


def describe_status(status: Mapping[str, Any]) -> str:
    """One line: state, progress, speed, time left, host and process, and the exploring and the greedy return."""
    parts = [STATE_TEXTS.get(status["state"], status["state"])]
    if status.get("frames_total"):
        parts.append(f"{format_count(status.get('frames', 0))} of {format_count(status['frames_total'])} frames")
    if status["state"] == "running" and status.get("frames_per_second"):
        parts.append(f"{format_count(status['frames_per_second'])} frames a second")
        if status.get("eta_s") is not None:
            parts.append(f"{format_clock(status['eta_s'])} left")
    if status["state"] in RUNNING_STATES and status.get("host"):
        parts.append(f"on {status['host']}, process {status.get('pid')}")
    if scores := scores_text(status):
        parts.append(scores)
    return ", ".join(parts)


def describe_failure(status: Mapping[str, Any], run: Run) -> str:
    """The error, its cause, its location and what to do; the log has the traceback."""
    parts = filter(None, error_parts(status.get("error") or "unknown error"))
    location = [line.strip() for line in reversed(run.events()) if line.strip().startswith("File ")]
    effect = "Resume continues from the last checkpoint" if run.checkpoints else "Resume starts from the beginning"
    hint = f"The log below has the traceback. {effect}; if you fix a module, restart the kernel first."
    return "\n".join([*parts, *location[:1], hint])


def describe_error(error: BaseException) -> str:
    """The text of an error that no log has; where it was not raised on purpose, with its type and the line of code."""
    if isinstance(error, MarlnbError):
        return str(error)
    *_, last = traceback.extract_tb(error.__traceback__)
    title = "".join(traceback.format_exception_only(error)).rstrip()
    return f'{title}\nFile "{last.filename}", line {last.lineno}, in {last.name}\n{last.line}'

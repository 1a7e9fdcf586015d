"""What is told of a run's state: one line, and few lines where it failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marlnb.formatting import format_clock, format_count
from marlnb.training.runs.run import Run

ALIVE = ("running", "paused")
WORDS = {
    "created": "not begun",
    "running": "training",
    "paused": "paused",
    "interrupted": "interrupted: go on from the last checkpoint",
    "stopped": "stopped: go on from the last checkpoint",
    "complete": "complete",
    "failed": "failed: the last checkpoint is whole",
}


def describe_status(status: Mapping[str, Any]) -> str:
    """One line: state, how far, how fast, how long yet, where."""
    parts = [WORDS.get(status["state"], status["state"])]
    if status.get("frames_total"):
        parts.append(f"{format_count(status.get('frames', 0))} of {format_count(status['frames_total'])} frames")
    if status["state"] == "running" and status.get("frames_per_second"):
        parts.append(f"{format_count(status['frames_per_second'])} frames a second")
        if status.get("eta_s") is not None:
            parts.append(f"{format_clock(status['eta_s'])} left")
    if status["state"] in ALIVE and status.get("host"):
        parts.append(f"on {status['host']}, process {status.get('pid')}")
    return ", ".join(parts)


def describe_failure(status: Mapping[str, Any], run: Run) -> str:
    """What failed, what raised, where, and what to do: few lines, since the log has the traceback."""
    told = str(status.get("error", "it failed")).strip().splitlines()
    where = [line.strip() for line in reversed(run.events()) if line.strip().startswith("File ")]
    goes_on = "Go on resumes from the last checkpoint" if run.checkpoints else "Go on begins again"
    hint = f"The log below has the traceback. {goes_on}; if you mend a module, restart the kernel first."
    return "\n".join([told[0], *told[-1:][: len(told) - 1], *where[:1], hint])

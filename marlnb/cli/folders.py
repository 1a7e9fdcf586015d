"""Run folders on the command line: what is said when a training has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marlnb.cli.output import say

if TYPE_CHECKING:
    from marlnb.training.runs.run import Run

STOPPED = 130


def end_of_training(run: Run) -> int:
    """Says how the training ended; 0 if it is complete, 130 if it was stopped before."""
    status = run.status()
    score = status.get("score")
    returns = f", mean return {score:.4g}" if score is not None else ""
    print(f"{run.path}: {status['state']}, {status.get('frames', 0):,} frames{returns}")
    if status["state"] == "complete":
        return 0
    say(f"stopped before its end; `marlnb resume {run.path}` goes on")
    return STOPPED

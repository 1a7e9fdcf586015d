"""What `marlnb train` and `marlnb resume` share: the option --record and the closing message."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.output import say

if TYPE_CHECKING:
    from marlnb.recording.capture.while_training import RecordWhileTraining
    from marlnb.training.runs.run import Run

STOPPED = 130


def add_record_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="OPTIONS",
        help="record during the training, into recordings/training.h5: every_iterations=10,episodes=20 (also "
        "sites=GLOB, name=, seed=, n_envs=, every=, dtype= and the other options of RecordWhileTraining)",
    )


def chosen_callbacks(arguments: argparse.Namespace) -> list[RecordWhileTraining]:
    """The callbacks that `--record` asks for.

    Raises:
        ConfigError: an unknown option, or a value of the wrong type or out of range.
    """
    if arguments.record is None:
        return []
    from marlnb.cli.options import config_from_text
    from marlnb.recording.capture.while_training import RecordWhileTraining

    return [config_from_text(arguments.record, RecordWhileTraining)]


def _latest_returns(run: Run) -> str:
    """The returns of the last evaluation, or else of the latest training episodes, by group."""
    from marlnb.training.runs.files import METRICS, read_lines

    rows = read_lines(run.path / METRICS)
    last = rows[-1] if rows else {}
    evaluation = next((row["evaluation"] for row in reversed(rows) if row.get("evaluation")), None)
    returns = evaluation or last.get("recent_returns") or {}
    each = " ".join(f"{name} {value:.4g}" for name, value in returns.items())
    return f", mean {'evaluation' if evaluation else 'return'} {each}" if each else ""


def end_of_training(run: Run) -> int:
    """Prints how the training ended; returns 0 if it is complete, 130 if it was stopped before its end."""
    status = run.status()
    returns = _latest_returns(run)
    print(f"{run.path}: {status['state']}, {status.get('frames', 0):,} frames{returns}")
    if status["state"] == "complete":
        return 0
    say(f"stopped before the end; to resume: marlnb resume {run.path}")
    return STOPPED

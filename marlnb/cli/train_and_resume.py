"""What `marlnb train` and `marlnb resume` share: the option --record and the closing message."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from marlnb.cli.output import say

if TYPE_CHECKING:
    from marlnb.recording.capture.while_training import RecordWhileTraining
    from marlnb.training.runs.run import Run

INTEGER_OPTIONS = ("every", "episodes", "every_step", "seed", "n_envs")
TEXT_OPTIONS = ("sites", "name", "dtype")
STOPPED = 130


def add_record_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="OPTIONS",
        help="record during the training, into recordings/training.h5: every=10,episodes=20 (every 10 iterations, "
        "20 episodes; also sites=GLOB, name=, seed=, n_envs=, every_step=, dtype=)",
    )


def chosen_callbacks(arguments: argparse.Namespace) -> list[RecordWhileTraining]:
    """The callbacks that `--record` asks for.

    Raises:
        ConfigError: an unknown option, or a number that is not a whole number.
        RecordingError: an option is out of range.
    """
    if arguments.record is None:
        return []
    from marlnb.errors import ConfigError, unknown
    from marlnb.recording.capture.while_training import RecordWhileTraining

    options: dict[str, Any] = {}
    for part in filter(None, arguments.record.split(",")):
        name, _, value = part.partition("=")
        if name not in (*INTEGER_OPTIONS, *TEXT_OPTIONS):
            raise ConfigError(unknown("option of --record", name, (*INTEGER_OPTIONS, *TEXT_OPTIONS)))
        if name in INTEGER_OPTIONS and not value.isdigit():
            raise ConfigError(f"--record {name}= takes a whole number, as {name}=10; got {value!r}")
        options[name] = int(value) if name in INTEGER_OPTIONS else value
    return [RecordWhileTraining(**options)]


def end_of_training(run: Run) -> int:
    """Prints how the training ended; returns 0 if it is complete, 130 if it was stopped before its end."""
    status = run.status()
    score = status.get("score")
    returns = f", mean return {score:.4g}" if score is not None else ""
    print(f"{run.path}: {status['state']}, {status.get('frames', 0):,} frames{returns}")
    if status["state"] == "complete":
        return 0
    say(f"stopped before the end; to resume: marlnb resume {run.path}")
    return STOPPED

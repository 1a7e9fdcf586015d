"""What `marlnb train` and `marlnb resume` share: the option --record and the closing message."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.exit_codes import INTERRUPTED
from marlnb.cli.output import print_text, say
from marlnb.display.formatting import marlnb_command

if TYPE_CHECKING:
    from marlnb.recording.capture.while_training import RecordWhileTraining
    from marlnb.training.runs.run import Run


def add_record_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="OPTIONS",
        help="record during the training, into recordings/training.h5: every_iterations=10,episodes=20 (also "
        "sites=GLOB, agents=[A,B], name=, seed=, n_envs=, every=, dtype= and the other options of RecordWhileTraining)",
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


def end_of_training(run: Run) -> int:
    """Prints how the training ended, with its exploring and its greedy return.

    Returns 0 if it is complete, 130 if it was stopped before its end.
    """
    from marlnb.training.runs.status import GREEDY, scores_text

    status = run.status()
    scores = scores_text(status)
    print_text(
        f"{run.shown_path}: {status['state']}, {status.get('frames', 0):,} frames{f', {scores}' if scores else ''}"
    )
    if status["state"] == "complete":
        if scores and not status["scores"].get(GREEDY):
            say(f"for the greedy return: {marlnb_command('evaluate', run.shown_path)}")
        return 0
    say(f"stopped before the end; to resume: {marlnb_command('resume', run.shown_path)}")
    return INTERRUPTED

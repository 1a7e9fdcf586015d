"""--record: recording while a training goes on, for `marlnb train` and `marlnb resume`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marlnb.recording.capture.while_training import RecordWhileTraining

NUMBERS = ("every", "episodes", "every_step", "seed", "n_envs")
WORDS = ("sites", "name", "dtype")


def add_record_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="OPTIONS",
        help="record while it trains, into recordings/training.h5: every=10,episodes=20 (iterations, episodes; also "
        "sites=GLOB, name=, seed=, n_envs=, every_step=, dtype=)",
    )


def chosen_callbacks(arguments: argparse.Namespace) -> list[RecordWhileTraining]:
    """What `--record` asks for.

    Raises:
        ConfigError: an option that is not there, or a number that is none.
        RecordingError: an option out of range.
    """
    if arguments.record is None:
        return []
    from marlnb.errors import ConfigError, unknown
    from marlnb.recording.capture.while_training import RecordWhileTraining

    options: dict[str, Any] = {}
    for part in filter(None, arguments.record.split(",")):
        name, _, value = part.partition("=")
        if name not in (*NUMBERS, *WORDS):
            raise ConfigError(unknown("option of --record", name, (*NUMBERS, *WORDS)))
        if name in NUMBERS and not value.isdigit():
            raise ConfigError(f"--record {name}= takes a whole number; got {value!r}")
        options[name] = int(value) if name in NUMBERS else value
    return [RecordWhileTraining(**options)]

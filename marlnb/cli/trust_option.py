"""The option --trust of commands that run code which a run folder names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow the code (environment, algorithm, network, function) that another person's run folder names, "
        "now and later; your own training runs need no permission",
    )


def trust_if_asked(arguments: argparse.Namespace, recording: Recording) -> None:
    """With --trust, allows the code that the run folder of a recording names."""
    if arguments.trust and recording.run_path is not None:
        from marlnb.training.runs.run import Run

        Run.open(recording.run_path, trust=True)

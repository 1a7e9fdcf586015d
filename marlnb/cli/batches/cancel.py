"""End the jobs of a batch: running jobs save first, queued jobs do not start.

examples:
  marlnb cancel runs/quickstart-batch
  marlnb cancel runs/quickstart-batch algorithm=mappo,seed=3

Nothing is lost: `marlnb batch BATCH` continues them.
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import print_json, print_text, say
from marlnb.display.formatting import marlnb_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch's folder")
    parser.add_argument(
        "jobs", nargs="*", default=[], metavar="JOB", help="names of jobs (default: all that have not ended)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    from marlnb.batch.batch import Batch
    from marlnb.batch.cancel import cancel

    batch = Batch.open(arguments.batch)
    effects = cancel(batch, arguments.jobs)
    if arguments.json:
        return print_json({"batch": str(batch.path), "cancelled": effects})
    for name, effect in effects.items():
        print_text(f"{name}: {effect}")
    again = f"to continue them: {marlnb_command('batch', batch.path)}"
    say(again if effects else f"{batch.path}: no job is running or queued")

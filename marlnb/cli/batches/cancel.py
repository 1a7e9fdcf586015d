"""End the jobs of a batch: what runs saves first, what is queued does not begin.

examples:
  marlnb cancel runs/quickstart-batch
  marlnb cancel runs/quickstart-batch algorithm=mappo,seed=3

Nothing is lost: `marlnb batch BATCH` goes on with them.
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import print_json, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="a batch's folder")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs (else all that have not ended)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.batch import Batch
    from marlnb.batch.cancel import cancel

    batch = Batch.open(arguments.batch)
    told = cancel(batch, arguments.jobs)
    if arguments.json:
        print_json({"batch": str(batch.path), "cancelled": told})
        return 0
    for name, what in told.items():
        print(f"{name}: {what}")
    say(f"`marlnb batch {batch.path}` goes on with them" if told else f"{batch.path}: no job is running or queued")
    return 0

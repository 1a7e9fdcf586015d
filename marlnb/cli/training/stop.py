"""Ask a training run, or a job of a batch, to save and stop; it may run on another node.

examples:
  marlnb stop runs/spread
  marlnb stop runs/quickstart-batch/jobs/algorithm=mappo,seed=3

The request is a file STOP in its folder. Nothing is lost.
"""

from __future__ import annotations

import argparse

from marlnb.cli.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN|JOB", help="the folder of a run, or of a job")


def run(arguments: argparse.Namespace) -> None:
    from marlnb.batch.cancel import stop

    say(stop(arguments.run))

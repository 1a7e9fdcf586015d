"""Resume a run from its last checkpoint.

examples:
  marlnb resume runs/spread
  marlnb resume runs/spread --frames 2_000_000     train a complete run further
  marlnb resume runs/spread --device cpu           continue where there is no GPU
"""

from __future__ import annotations

import argparse

from marlnb.cli.train_and_resume import add_record_argument, chosen_callbacks, end_of_training
from marlnb.cli.trust_option import add_trust_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", metavar="RUN", help="the run's folder")
    add("--frames", type=int, metavar="N", help="new total length of the training, in frames (default: the run's own)")
    add("--max-iterations", type=int, metavar="N", help="new limit of the iterations, all sessions together")
    add("--max-minutes", type=float, metavar="M", help="new limit of the training time, all sessions together")
    add("--max-agent-steps", type=int, metavar="N", help="new limit of the steps of single agents")
    add("--device", metavar="D", help="continue on this device, such as cpu where there is no GPU")
    add_record_argument(parser)
    add_trust_argument(parser)
    add("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.training.limits import CHANGEABLE
    from marlnb.training.train import resume

    callbacks, progress = chosen_callbacks(arguments), not arguments.quiet
    changes = {name: getattr(arguments, name) for name in CHANGEABLE}
    return end_of_training(
        resume(arguments.run, **changes, trust=arguments.trust, progress=progress, callbacks=callbacks)
    )

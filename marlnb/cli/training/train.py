"""Train an experiment in a new run folder.

Overrides in Hydra's grammar choose parts by name and set options by path.

  marlnb train env=mpe/simple_spread algorithm=mappo frames=1_000_000 seed=0 run=runs/spread
  marlnb train env=pettingzoo/multiwalker algorithm.lr=1e-4 model=gru model.hidden=[128,128]
  marlnb train env=mpe/simple_tag algorithms.adversary=mappo algorithms.agent=ippo models.agent=gru

Ctrl-C, SIGTERM or a file STOP in the run's folder ends the training after the current iteration with a checkpoint, from
which `marlnb resume` continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from marlnb.cli.train_and_resume import add_record_argument, chosen_callbacks, end_of_training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_run = "what to train; run=FOLDER sets the run's folder (default runs/<env>-<algorithm>-<seed>-<n>)"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=help_run)
    help_resume = "if run=FOLDER already has this experiment, resume it, or do nothing if it is complete"
    add("--resume", action="store_true", help=help_resume)
    add("--config-dir", metavar="FOLDER", help="YAML variants and experiments (default $MARLNB_CONFIG_DIR)")
    add("--dry-run", action="store_true", help="print the composed experiment as JSON, train nothing")
    add_record_argument(parser)
    add("--quiet", action="store_true", help="no progress bar")
    add("-h", "--help", action="store_true", help="show this help and the options of the named parts")


def run(arguments: argparse.Namespace) -> int:
    folder, overrides = split_run(arguments.overrides)
    if arguments.help:
        print_help(arguments, overrides)
        return 0
    from marlnb.experiment import Experiment

    experiment = Experiment.compose(*overrides, config_dir=arguments.config_dir)
    if arguments.dry_run:
        import json

        print(json.dumps(experiment.to_json(), indent=2))
        return 0
    from marlnb.training.train import train

    callbacks, progress = chosen_callbacks(arguments), not arguments.quiet
    return end_of_training(train(experiment, folder, resume=arguments.resume, progress=progress, callbacks=callbacks))


def split_run(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The folder of `run=FOLDER`, with any characters, and the other overrides."""
    folders = [word.removeprefix("run=") for word in words if word.startswith("run=")]
    return (folders[-1] or None) if folders else None, [word for word in words if not word.startswith("run=")]


def print_help(arguments: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Prints the usage, the experiment's options, and the options of the parts that the overrides name."""
    import marlnb.cli as cli
    from marlnb.cli.options import part_texts
    from marlnb.experiment import Experiment

    print(cli.parser_of("train").format_help())
    for text in part_texts(Experiment, overrides, arguments.config_dir):
        print(text)

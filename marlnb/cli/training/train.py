"""Train an experiment in a new run folder.

Overrides say what: a part by its name, an option by its path, in Hydra's grammar.

  marlnb train env=mpe/simple_spread algorithm=mappo frames=1_000_000 seed=0 run=runs/spread
  marlnb train env=pettingzoo/multiwalker algorithm.lr=1e-4 model=gru model.hidden=[128,128]
  marlnb train env=mpe/simple_tag algorithms.adversary=mappo algorithms.agent=ippo models.agent=gru

An interrupt (Ctrl-C), SIGTERM or a file STOP in the run folder ends the training after the iteration under way, with
a checkpoint; `marlnb resume` goes on from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from marlnb.cli.train_and_resume import add_record_argument, chosen_callbacks, end_of_training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="what to train; run=FOLDER names the run's folder (else runs/<env>-<algorithm>-<seed>-<n>)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="if run=FOLDER holds this experiment already, go on with it, or do nothing where it is complete",
    )
    parser.add_argument("--config-dir", metavar="FOLDER", help="YAML variants and experiments (else MARLNB_CONFIG_DIR)")
    parser.add_argument("--dry-run", action="store_true", help="print the composed experiment as JSON, train nothing")
    add_record_argument(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("-h", "--help", action="store_true", help="this, and the options of the parts that are named")


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

    callbacks = chosen_callbacks(arguments)
    return end_of_training(
        train(experiment, folder, resume=arguments.resume, progress=not arguments.quiet, callbacks=callbacks)
    )


def split_run(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """`run=FOLDER` and the other overrides; the folder's name is taken as it is, whatever characters it has."""
    folders = [word.removeprefix("run=") for word in words if word.startswith("run=")]
    return (folders[-1] or None) if folders else None, [word for word in words if not word.startswith("run=")]


def print_help(arguments: argparse.Namespace, overrides: Sequence[str]) -> None:
    """The usage, the experiment's options, and those of the parts that the overrides name."""
    import marlnb.cli as cli
    from marlnb.cli.options import part_texts
    from marlnb.experiment import Experiment

    print(cli.parser_of("train").format_help())
    for text in part_texts(Experiment, overrides, arguments.config_dir):
        print(text)

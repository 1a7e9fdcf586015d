"""Train an experiment in a new run folder, or several experiments below one folder.

Overrides in Hydra's grammar choose parts by name and set options by path.

  marlnb train env=mpe/simple_spread algorithm=mappo frames=1_000_000 seed=0 run=runs/spread
  marlnb train env=pettingzoo/multiwalker algorithm.lr=1e-4 model=gru model.hidden=[128,128]
  marlnb train env=mpe/simple_tag algorithms.adversary=mappo algorithms.agent=ippo models.agent=gru
  marlnb train env=mpe/simple_spread algorithm=ippo,mappo seed=0..4 run=runs/both --jobs 2
  marlnb train env=mpe/simple_spread algorithm=ippo seeds=8 run=runs/seeds

Several values (as Hydra's multirun: `seed=0,1,2`, `seed=0..4`) train every combination, each in a folder below
run=FOLDER. If one fails, the others continue; the same command resumes what is not complete. `marlnb benchmark` also
evaluates and compares them. seeds=8 trains the seeds 0 to 7 together, in one batched product for each core.

Ctrl-C, SIGTERM or a file STOP in the run's folder ends the training after the current iteration with a checkpoint, from
which `marlnb resume` continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from marlnb.cli.config_dir_option import add_config_dir_argument
from marlnb.cli.exit_codes import FAILED, INTERRUPTED
from marlnb.cli.output import print_table, print_text, quiet_stdout, say
from marlnb.cli.train_and_resume import add_record_argument, chosen_callbacks, end_of_training
from marlnb.display.formatting import count, marlnb_command
from marlnb.errors import ConfigError
from marlnb.paths import expanded
from marlnb.training.runs.files import is_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_run = (
        "what to train; run=FOLDER sets the run's folder (default runs/<env>-<algorithm>-<seed>-<n>; for several runs "
        "runs/<env>-<their options>)"
    )
    add("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=help_run)
    help_resume = "if run=FOLDER already has this experiment, resume it, or do nothing if it is complete"
    add("--resume", action="store_true", help=help_resume)
    add_config_dir_argument(parser, "YAML variants and experiments")
    help_dry = "print the composed experiment as JSON, or the table of several runs; train nothing"
    add("--dry-run", action="store_true", help=help_dry)
    help_jobs = (
        "of several runs: parallel processes, each with its share of the cores and GPUs (default 1; with seeds= one "
        "for each core; for the players of a league all)"
    )
    add("--jobs", type=int, metavar="N", help=help_jobs)
    add_record_argument(parser)
    add("--quiet", action="store_true", help="no progress bar")
    add("-h", "--help", action="store_true", help="show this help and the options of the named parts")


def run(arguments: argparse.Namespace) -> int:
    folder, overrides = split_run(arguments.overrides)
    if arguments.help:
        print_help(arguments, overrides)
        return 0
    for word in overrides:
        if "=" not in word and is_run(expanded(word)):
            raise ConfigError(f"{word} is a run's folder; {marlnb_command('resume', word)} continues its training")
    if any(word.startswith("seeds=") or is_swept(word) for word in overrides):
        return _train_several(arguments, folder, overrides)
    if arguments.jobs is not None:
        raise ConfigError("--jobs needs several runs, such as seed=0..4 or algorithm=ippo,mappo; this is one")
    from marlnb.experiment import Experiment

    experiment = Experiment.compose(*overrides, config_dir=arguments.config_dir)
    experiment.check_without_env()
    if unused := experiment.unused_overrides(overrides):
        raise ConfigError("; ".join(unused))
    if arguments.dry_run:
        import json

        print_text(json.dumps(experiment.to_json(), indent=2))
        return 0
    if arguments.resume and folder is None:
        raise ConfigError("--resume needs the run's folder: run=FOLDER")
    from marlnb.training.train import train

    callbacks, progress = chosen_callbacks(arguments), not arguments.quiet
    if progress:
        say(repr(experiment))  # what is trained, and from which settings
    return end_of_training(train(experiment, folder, resume=arguments.resume, progress=progress, callbacks=callbacks))


def is_swept(word: str) -> bool:
    """Whether an override may have several values; a comma within brackets or quotes is read as one value later."""
    value = word.partition("=")[2]
    if not any(mark in value for mark in (",", "..", "range(", "choice(", "sort(", "shuffle(")):
        return False
    from marlnb.batch.trainings.train_all import swept_values

    return bool(swept_values([word]))


def _train_several(arguments: argparse.Namespace, folder: str | None, overrides: list[str]) -> int:

    from marlnb.batch.trainings.train_all import (
        Trainings,
        check_folder,
        common_folder,
        expand_seeds,
        plan_trainings,
        train_all,
    )

    if arguments.record is not None:
        raise ConfigError("--record needs one run; these are several. Record each afterwards: marlnb record FOLDER/RUN")
    overrides, together = expand_seeds(overrides)
    trainings = plan_trainings(overrides, config_dir=arguments.config_dir)
    if together:
        from marlnb.batch.trainings.launch_together import groups_together

        groups_together(trainings)  # raises an error if some cannot
    if arguments.dry_run:
        path = expanded(folder) if folder is not None else common_folder(trainings)
        check_folder(path, trainings)
        _print_rows(Trainings(path, tuple(trainings), {}, False).rows())
        print_text(f"\n{count(len(trainings), 'run')} in {path}")
        return 0
    with quiet_stdout():
        result = train_all(
            trainings,
            folder,
            jobs=arguments.jobs,
            together=together,
            progress=not arguments.quiet,
        )
    rows = result.rows()
    _print_rows(rows)
    print_text(f"{result.path}: {sum(row['state'] == 'complete' for row in rows)} of {len(rows)} runs complete")
    for name, message in result.failed.items():
        say(f"failed: {name}: {message}")
    if result.stopped:
        say("stopped before the end; the same command continues")
        return INTERRUPTED
    return FAILED if result.failed else 0


def _print_rows(rows: list[dict[str, Any]]) -> None:
    header = list(dict.fromkeys(key for row in rows for key in row))
    print_table(header, [["-" if row.get(key) is None else row[key] for key in header] for row in rows])


def split_run(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The folder of `run=FOLDER`, with any characters, and the other overrides.

    Raises:
        ConfigError: several folders are given.
    """
    given = [word for word in words if word.startswith("run=")]
    if len(given) > 1:
        raise ConfigError(f"expected one run=FOLDER; got {' '.join(given)}")
    folder = given[0].removeprefix("run=") if given else ""
    return folder or None, [word for word in words if word not in given]


def print_help(arguments: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Prints the usage, the experiment's options, and the options of the parts that the overrides name."""
    import marlnb.cli as cli
    from marlnb.cli.options import part_texts
    from marlnb.experiment import Experiment

    print_text(cli.parser_of("train").format_help())
    for text in part_texts(Experiment, overrides, arguments.config_dir):
        print_text(text)

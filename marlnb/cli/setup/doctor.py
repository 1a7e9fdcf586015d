"""Say before submission what would fail on the node, and what to do about it.

The notebook's kernel is really started, its cells are read (not executed), and the scheduler is asked whether it would
take the batch. Nothing is submitted, and nothing reaches for the internet. With --on-node the same is asked on a
compute node, by one small job.

  marlnb doctor notebooks/quickstart.ipynb -p algorithm=mappo,ippo -p seed=0..4 --on slurm
  marlnb doctor notebooks/quickstart.ipynb --on slurm --on-node
  marlnb doctor --batch runs/sweep

Exit codes: 0 all is well, or warnings; 1 something would fail; 2 bad request.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, quiet_stdout
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.doctor.check import DoctorRequest, Finding

FAILS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebook", nargs="?", metavar="NOTEBOOK", type=Path, help="the notebook that is to run")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="KEY=VALUES", help="as for batch")
    parser.add_argument("--on", metavar="PROFILE", help="the profile (default: local, or the batch's own)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the profile")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where the batch will lie (default: runs)")
    parser.add_argument("--batch", metavar="FOLDER", type=Path, help="a batch that is there, instead of a notebook")
    parser.add_argument("--run", metavar="RUN", type=Path, help="a run that is to be gone on with")
    parser.add_argument("--on-node", action="store_true", help="ask on a compute node, by one small job")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with quiet_stdout():
        from marlnb.batch.doctor.check import examine
        from marlnb.batch.doctor.node import examine_on_node

        subject = _subject(arguments)
        findings: Iterator[Finding] = examine_on_node(subject) if arguments.on_node else examine(subject)
        found = list(findings)
    count = Counter(finding.level for finding in found)
    if arguments.json:
        print_json({"findings": [finding.to_json() for finding in found], "fails": count["fail"]})
    else:
        _print(found)
        print(f"\n{count['fail']} would fail, {count['warn']} may, {count['ok']} are well")
    return FAILS if count["fail"] else 0


def _print(found: list[Finding]) -> None:
    """What would fail last, where a terminal shows it."""
    for level in ("ok", "warn", "fail"):
        for finding in (each for each in found if each.level == level):
            print(f"{level:<5} {finding.name}: {finding.finding}")
            if finding.remedy:
                print(f"      -> {finding.remedy}")


def _subject(arguments: argparse.Namespace) -> DoctorRequest:
    from marlnb.batch.batch import SOURCE, Batch
    from marlnb.batch.doctor.check import DoctorRequest
    from marlnb.batch.profile import find_profile, with_changes
    from marlnb.batch.sweep.grammar import make_sweep, values_of_texts
    from marlnb.batch.sweep.parameters import parse_parameters
    from marlnb.batch.sweep.sweep import Sweep

    changes = parse_parameters(arguments.set)
    if arguments.run is not None and not (arguments.run / "experiment.json").is_file():
        raise ConfigError(f"{arguments.run} is no run: it has no experiment.json")
    existing = () if arguments.run is None else (arguments.run.absolute(),)
    if arguments.batch is not None:
        if arguments.notebook or arguments.parameter or arguments.out:
            raise ConfigError("--batch brings its notebook, parameters and folder: give no other")
        batch = Batch.open(arguments.batch)
        profile = find_profile(arguments.on, changes) if arguments.on else with_changes(batch.profile, changes)
        return DoctorRequest(profile, batch.path, batch.cwd, batch.path / SOURCE, batch.sweep, (batch.path, *existing))
    if arguments.parameter and arguments.notebook is None:
        raise ConfigError("-p is given and no notebook whose parameters it could be")
    profile = find_profile(arguments.on or "local", changes)
    sweep = Sweep({}, {})
    if arguments.notebook is not None:
        sweep = make_sweep(arguments.notebook, values_of_texts(arguments.parameter))
    folder = (arguments.out or Path("runs")).expanduser().absolute()
    return DoctorRequest(profile, folder, Path.cwd(), arguments.notebook, sweep, existing)

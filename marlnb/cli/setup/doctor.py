"""Find before a submission what would fail on the node, and how to correct it.

The notebook's kernel is started, its cells are read (not executed), and the scheduler checks the batch's script.
Nothing is submitted, and no internet is used. With --on-node the same checks run on a compute node, in one small job.

  marlnb doctor notebooks/quickstart.ipynb -p algorithm=mappo,ippo -p seed=0..4 --on slurm
  marlnb doctor notebooks/quickstart.ipynb --on slurm --on-node
  marlnb doctor --batch runs/sweep

Exit codes: 0 no failures (there may be warnings); 1 something would fail; 2 bad input.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_text, quiet_stdout
from marlnb.display.formatting import count
from marlnb.errors import ConfigError
from marlnb.paths import expanded

if TYPE_CHECKING:
    from marlnb.batch.doctor.check import Finding
    from marlnb.batch.doctor.request import DoctorRequest

FAILS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("notebook", nargs="?", metavar="NOTEBOOK", type=Path, help="the notebook to run")
    add("-p", "--parameter", action="append", default=[], metavar="KEY=VALUES", help="values, as for `marlnb batch`")
    add("--on", metavar="PROFILE", help="the profile (default: local, or the batch's own)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value for a key of the profile")
    add("--out", metavar="FOLDER", type=Path, help="the batch's folder (default runs)")
    add("--batch", metavar="FOLDER", type=Path, help="an existing batch, instead of a notebook")
    add("--run", metavar="RUN", type=Path, help="a run that will be resumed")
    add("--on-node", action="store_true", help="run the checks on a compute node")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    with quiet_stdout():
        from marlnb.batch.doctor.check import examine
        from marlnb.batch.doctor.node import examine_on_node

        request = _request(arguments)
        results = list(examine_on_node(request) if arguments.on_node else examine(request))
    counts = Counter(finding.level for finding in results)
    if arguments.json:
        print_json({"findings": [asdict(finding) for finding in results], "fails": counts["fail"]})
    else:
        _print(results)
        print_text(f"\n{counts['fail']} would fail, {count(counts['warn'], 'warning')}, {counts['ok']} ok")
    return FAILS if counts["fail"] else 0


def _print(findings: list[Finding]) -> None:
    """Prints failures last, where a terminal shows them."""
    for level in ("ok", "warn", "fail"):
        for finding in (finding for finding in findings if finding.level == level):
            print_text(f"{level:<5} {finding.name}: {finding.finding}")
            if finding.remedy:
                print_text(f"      -> {finding.remedy}")


def _request(arguments: argparse.Namespace) -> DoctorRequest:
    from marlnb.batch.batch import SOURCE, Batch
    from marlnb.batch.doctor.request import DoctorRequest
    from marlnb.batch.profile import find_profile, with_changes
    from marlnb.batch.sweep.grammar import make_sweep, values_of_texts
    from marlnb.batch.sweep.parameters import parse_parameters
    from marlnb.batch.sweep.sweep import Sweep

    changes = parse_parameters(arguments.set, option="--set")
    if arguments.run is not None and not (arguments.run / "experiment.json").is_file():
        raise ConfigError(f"{arguments.run} is not a run: it has no experiment.json; give the folder of a run")
    existing = () if arguments.run is None else (arguments.run.absolute(),)
    if arguments.batch is not None:
        if arguments.notebook or arguments.parameter or arguments.out:
            raise ConfigError("--batch has its own notebook, parameters and folder; remove NOTEBOOK, -p and --out")
        batch = Batch.open(arguments.batch)
        profile = with_changes(find_profile(arguments.on) if arguments.on else batch.profile, changes)
        return DoctorRequest(profile, batch.path, batch.cwd, batch.path / SOURCE, batch.sweep, (batch.path, *existing))
    if arguments.parameter and arguments.notebook is None:
        raise ConfigError("-p needs a notebook; give NOTEBOOK too")
    profile, sweep = with_changes(find_profile(arguments.on or "local"), changes), Sweep({}, {})
    if arguments.notebook is not None:
        sweep = make_sweep(arguments.notebook, values_of_texts(arguments.parameter))
    folder = expanded(arguments.out or "runs").absolute()
    return DoctorRequest(profile, folder, Path.cwd(), arguments.notebook, sweep, existing)

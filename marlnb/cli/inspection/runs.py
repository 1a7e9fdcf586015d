"""List the runs in a folder and its subfolders: state, progress and exploring return.

examples:
  marlnb runs                       every run in runs/
  marlnb runs runs/both --json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, say
from marlnb.display.formatting import format_clock, format_count, format_number

if TYPE_CHECKING:
    from marlnb.training.runs.listing import RunSummary

HEADER = (
    "run",
    "state",
    "frames",
    "time left",
    "exploring return",
    "algorithm",
    "environment",
    "seed",
    "host",
    "problem",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="a folder of runs (default runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> None:
    from marlnb.training.runs.listing import list_runs

    problems: list[str] = []
    runs = list_runs(arguments.folder, problems)
    if arguments.json:
        return print_json({"runs": [each.to_json() for each in runs], "problems": problems})
    if runs:
        print_table(HEADER, [_cells(each) for each in runs])
    else:
        say(f"no runs in {arguments.folder}; `marlnb train env=… algorithm=…` makes one")
    for problem in problems:
        say(problem)


def _cells(each: RunSummary) -> list[object]:
    total = f" of {format_count(each.frames_total)}" if each.frames_total else ""
    left = "" if each.eta_s is None else format_clock(each.eta_s)
    score = ", ".join(f"{group} {format_number(value)}" for group, value in each.returns.items())
    score = score or ("" if each.score is None else format_number(each.score))
    frames = format_count(each.frames) + total
    seed = "" if each.seed is None else str(each.seed)
    return [each.name, each.state, frames, left, score, each.algorithm, each.env, seed, each.host, each.problem]

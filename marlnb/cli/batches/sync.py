"""Upload runs that training runs wrote offline to Weights & Biases, from a machine with internet.

Jobs on compute nodes write to <run>/wandb. This command finds these folders in runs, batches and their subfolders and
uploads them with `wandb sync`; the attempts of one training run become one run. A second call uploads only what is new.

  marlnb sync runs/sweep
  marlnb sync runs/sweep --dry-run
  wandb login        # once
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, print_text, say

if TYPE_CHECKING:
    from marlnb.batch.wandb_sync import OfflineRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FOLDER", default=[], help="runs or batches (default: runs)")
    parser.add_argument("--dry-run", action="store_true", help="list the runs, upload nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.wandb_sync import find_offline_runs, upload

    runs = find_offline_runs(arguments.paths or ["runs"])
    states = {run.folder: _state(run) for run in runs}
    pending = [run for run in runs if states[run.folder] == "to upload"]
    failed = []
    if pending and not arguments.dry_run:
        failed = upload(pending)
        states.update({run.folder: "uploaded now" for run in pending} | {run.folder: "not uploaded" for run in failed})
    if arguments.json:
        print_json({"runs": [{"folder": str(run.folder), "id": run.id, "state": states[run.folder]} for run in runs]})
    elif runs:
        rows = [(run.run.name, run.started, run.id, states[run.folder]) for run in runs]
        print_table(["run", "started", "id", "state"], rows)
    else:
        print_text("no offline runs of Weights & Biases found; a training run writes them with `loggers=[wandb]`")
    for run in failed:
        say(f"marlnb: {run.folder} was not uploaded completely; run the same command to try again")
    return 1 if failed else 0


def _state(run: OfflineRun) -> str:
    if run.is_synced:
        return "uploaded before"
    return "still being written" if run.is_busy else "to upload"

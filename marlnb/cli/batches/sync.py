"""Upload to Weights & Biases what trainings wrote offline, from a machine with internet.

Jobs on compute nodes write to <run>/wandb. This finds it below runs, batches or folders of them and uploads it with
`wandb sync`; the attempts of one training become one run. Run again, it uploads only what is new.

  marlnb sync runs/sweep
  marlnb sync runs/sweep --dry-run
  wandb login        # once, before
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from marlnb.batch.wandb_sync import OfflineRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FOLDER", default=[], help="runs or batches (default: runs)")
    parser.add_argument("--dry-run", action="store_true", help="list what there is, upload nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.wandb_sync import find_offline_runs, upload

    found = find_offline_runs(arguments.paths or ["runs"])
    states = {each.folder: _state(each) for each in found}
    todo = [each for each in found if states[each.folder] == "to upload"]
    left = upload(todo) if todo and not arguments.dry_run else []
    if not arguments.dry_run:
        states.update({each.folder: "uploaded now" for each in todo} | {each.folder: "not uploaded" for each in left})
    _show(found, [states[each.folder] for each in found], arguments.json)
    for each in left:
        say(f"marlnb: {each.folder} was not uploaded whole; the same command tries again")
    return 1 if left else 0


def _state(found: OfflineRun) -> str:
    if found.is_synced:
        return "uploaded before"
    return "still being written" if found.is_busy else "to upload"


def _show(found: list[OfflineRun], states: list[str], as_json: bool) -> None:
    told = list(zip(found, states, strict=True))
    if as_json:
        print_json({"runs": [{"folder": str(each.folder), "id": each.id, "state": state} for each, state in told]})
    elif told:
        print_table(
            ["run", "began", "id", "state"], [(each.run.name, each.began, each.id, state) for each, state in told]
        )
    else:
        print("no offline runs of Weights & Biases there: a training writes them with `loggers=[wandb]`")

"""Execute a notebook for every combination of parameters, here or on a cluster.

The notebook's cell tagged `parameters` says what it takes (`--parameters` shows it). The plan is shown before anything
begins. Run again, the same line completes only what is missing; so does `marlnb batch BATCH`.

  marlnb batch notebooks/quickstart.ipynb -p algorithm=mappo,ippo -p seed=0..4 --on local
  marlnb batch notebooks/quickstart.ipynb -p seed=0..4 --on slurm --set time_limit=4:00:00 --dry-run
  marlnb batch runs/quickstart-batch --only algorithm=mappo,seed=3
  marlnb batch notebooks/quickstart.ipynb --parameters

Values: seed=0..4 (the last included), seed=0..8..2, a list of values name=a,b; JSON for one value that is a list,
'hidden=[64,64]', or a text with a comma, 'name="a,b"'. --parameters-file takes the rest without a shell's quoting.

Ctrl-C while it waits ends local jobs, each saved, so that the same line goes on with them; jobs of a cluster go on.
Exit codes: 0 every job is complete, or was submitted; 1 one failed or was stopped; 2 nothing was begun; 130 interrupted
while waiting.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, say
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.batch import Batch
    from marlnb.batch.plan import Plan
    from marlnb.batch.sweep.grammar import Values

ASKS_ABOVE = 20  # local jobs that begin without a question


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebook", metavar="NOTEBOOK|BATCH", help="a notebook, or a batch's folder to complete it")
    parser.add_argument(
        *("-p", "--parameter"), action="append", default=[], metavar="NAME=VALUES", help="a parameter's values"
    )
    parser.add_argument("--parameters-file", metavar="FILE", help="YAML: values by name, lists are axes; -p overrides")
    parser.add_argument("--parameters", action="store_true", help="show what the notebook takes, and nothing else")
    parser.add_argument("--on", metavar="PROFILE", help="where: local, slurm, a profile of yours (default local)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help="a key of the profile, changed"
    )
    parser.add_argument("--out", metavar="FOLDER", help="the batch's folder (else runs/<notebook>-batch)")
    parser.add_argument(
        "--then",
        metavar="NOTEBOOK",
        help="a report, run when all are complete; it is given `batch`; `compare` comes with marlnb",
    )
    parser.add_argument("--only", action="append", default=[], metavar="JOB", help="this job and no other; repeatable")
    parser.add_argument("--no-retry", action="store_true", help="leave jobs that failed")
    parser.add_argument(
        "--changed", action="store_true", help="go on with the notebook as it is now, though it changed"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the script, begin nothing")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("--wait", action="store_true", default=None, help="until all have ended (local: the default)")
    waiting.add_argument("--detach", action="store_false", dest="wait", help="return at once (slurm: the default)")
    parser.add_argument("--yes", action="store_true", help=f"do not ask, even for more than {ASKS_ABOVE} jobs")
    parser.add_argument("--force", action="store_true", help="begin though the disk seems too small")
    parser.add_argument("--quiet", action="store_true", help="neither plan nor progress")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    if arguments.parameters:
        return _show_parameters(Path(arguments.notebook), arguments.json)
    from marlnb.batch.submit import begin, plan_submission
    from marlnb.batch.sweep.parameters import parse_parameters

    plan = plan_submission(
        arguments.notebook,
        _given(arguments),
        on=arguments.on,
        changes=parse_parameters(arguments.changes, option="--set"),
        out=arguments.out,
        then=arguments.then,
        only=arguments.only,
        retry_failed=not arguments.no_retry,
        changed=arguments.changed,
    )
    if arguments.dry_run:
        return _show_plan(plan, arguments.json)
    if not arguments.quiet and not arguments.json:
        say(plan.describe())
    if not (arguments.yes or _agreed(plan)):
        say("nothing was begun")
        return 2
    batch = begin(plan, force=arguments.force)
    wait = arguments.wait if arguments.wait is not None else batch.profile.executor == "local"
    return _wait(batch, arguments) if wait else _leave(batch, plan, arguments.json)


def _given(arguments: argparse.Namespace) -> dict[str, Values]:
    from marlnb.batch.sweep.grammar import values_of_file, values_of_texts

    file = arguments.parameters_file
    return (values_of_file(Path(file)) if file else {}) | values_of_texts(arguments.parameter)


def _show_parameters(notebook: Path, as_json: bool) -> int:
    from marlnb.batch.batch import BATCH, SOURCE
    from marlnb.batch.sweep.parameters import read_parameters

    found = read_parameters(notebook / SOURCE if (notebook / BATCH).is_file() else notebook)
    if as_json:
        print_json(
            {
                name: {"takes": each.takes, "default": each.default, "code": each.code, "help": each.help}
                for name, each in found.items()
            }
        )
        return 0
    if not found:
        raise ConfigError(f"{notebook} has no cell tagged `parameters`, or none is assigned in it")
    rows = [[each.name, each.takes, each.code or "(needed)", each.help] for each in found.values()]
    print_table(["parameter", "takes", "default", "what it is"], rows)
    return 0


def _show_plan(plan: Plan, as_json: bool) -> int:
    jobs = plan.begins
    script = plan.batch.executor().preview(plan.batch, jobs, then=plan.report is not None) if jobs else ""
    if as_json:
        print_json({**plan.to_json(), "script": script})
        return 0
    print(plan.describe())
    if script:
        print(f"\n{script}", end="")
    return 0


def _agreed(plan: Plan) -> bool:
    """Asks a person at a terminal about something big; nobody else is asked."""
    small = len(plan.begins) <= ASKS_ABOVE and plan.batch.profile.executor == "local"
    if small or not plan.begins or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"begin {len(plan.begins)} jobs? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _leave(batch: Batch, plan: Plan, as_json: bool) -> int:
    begun = [job.name for job in plan.begins]
    if as_json:
        print_json({"batch": str(batch.path), "begun": begun})
        return 0
    print(batch.path)
    say(f"{len(begun)} jobs submitted; `marlnb jobs {batch.path}` shows them, `marlnb watch {batch.path}` waits")
    return 0


def _wait(batch: Batch, arguments: argparse.Namespace) -> int:
    from marlnb.batch.watch import watch
    from marlnb.cli.batches.jobs import end_of_batch

    silent = arguments.quiet or arguments.json
    try:
        batch = watch(batch, progress=not silent, owns=batch.profile.executor == "local")
    except KeyboardInterrupt:
        if batch.profile.executor == "local":
            say(f"stopped, and saved; `marlnb batch {batch.path}` goes on")
        else:
            say(f"the jobs go on: `marlnb watch {batch.path}` shows them, `marlnb cancel {batch.path}` ends them")
        return 130
    return end_of_batch(batch, as_json=arguments.json, tell_failures=silent)

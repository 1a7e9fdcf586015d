"""Execute a notebook for each combination of parameters, here or on a cluster.

The notebook's cell tagged `parameters` defines its parameters (`--parameters` shows them). The plan is printed before
anything starts. The same command, or `marlnb batch BATCH`, completes what is missing.

  marlnb batch notebooks/quickstart.ipynb -p algorithm=mappo,ippo -p seed=0..4 --on local
  marlnb batch notebooks/quickstart.ipynb -p seed=0..4 --on slurm --set time_limit=4:00:00 --dry-run
  marlnb batch runs/quickstart-batch --only algorithm=mappo,seed=3
  marlnb batch notebooks/quickstart.ipynb --parameters

Values: a range seed=0..4 (with its last value) or seed=0..8..2; a list name=a,b; JSON for one value that is a list,
'hidden=[64,64]', or for a text with a comma, 'name="a,b"'. A --parameters-file needs no quoting for the shell.

Ctrl-C during the wait ends local jobs after they have saved, and the same command continues them; jobs on a cluster
keep running. Exit codes: 0 every requested job is complete, or was submitted; 1 one failed or was stopped; 2 nothing
was started; 130 interrupted during the wait.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.exit_codes import INTERRUPTED
from marlnb.cli.output import print_json, print_table, print_text, say
from marlnb.display.formatting import count, marlnb_command
from marlnb.errors import ConfigError

if TYPE_CHECKING:
    from marlnb.batch.batch import Batch
    from marlnb.batch.submission_plan import SubmissionPlan

MAX_UNASKED_JOBS = 20  # local jobs that start without a question


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("notebook", metavar="NOTEBOOK|BATCH", help="a notebook, or a batch's folder to complete it")
    add(*("-p", "--parameter"), action="append", default=[], metavar="NAME=VALUES", help="values of a parameter")
    add("--parameters-file", metavar="FILE", help="YAML with values by name, lists are axes; -p overrides it")
    add("--parameters", action="store_true", help="show the notebook's parameters and exit")
    add("--on", metavar="PROFILE", help="where: local, slurm, ray or another profile (default local)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value for a key of the profile")
    add("--out", metavar="FOLDER", help="the batch's folder (default runs/<notebook>-batch)")
    help_then = "a report to run when all jobs are complete, with the parameter `batch`; `compare` comes with marlnb"
    add("--then", metavar="NOTEBOOK", help=help_then)
    add("--only", action="append", default=[], metavar="JOB", help="only this job; repeatable")
    add("--no-retry", action="store_true", help="do not run failed jobs again")
    add("--update-notebook", action="store_true", help="continue unfinished jobs with the notebook as it is now")
    add("--dry-run", action="store_true", help="check everything, print plan and script, start nothing")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("--wait", action="store_true", default=None, help="wait for the end (default for local)")
    waiting.add_argument("--detach", action="store_false", dest="wait", help="return at once (default on a cluster)")
    add("--yes", action="store_true", help=f"do not ask before more than {MAX_UNASKED_JOBS} jobs")
    add("--force", action="store_true", help="start even if the disk seems too small, or the scheduler does not answer")
    add("--quiet", action="store_true", help="print neither the plan nor progress")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    if arguments.parameters:
        _show_parameters(Path(arguments.notebook), arguments.json)
        return 0
    from marlnb.batch.submit import plan_submission, submit_plan
    from marlnb.batch.sweep.grammar import values_of_file, values_of_texts
    from marlnb.batch.sweep.parameters import parse_parameters

    file = arguments.parameters_file
    plan = plan_submission(
        arguments.notebook,
        (values_of_file(Path(file)) if file else {}) | values_of_texts(arguments.parameter),
        on=arguments.on,
        profile_overrides=parse_parameters(arguments.set, option="--set"),
        out=arguments.out,
        then=arguments.then,
        only=arguments.only,
        retry_failed=not arguments.no_retry,
        update_notebook=arguments.update_notebook,
        dry_run=arguments.dry_run,
    )
    if arguments.dry_run:
        _show_plan(plan, arguments.json)
        return 0
    if not arguments.quiet and not arguments.json:
        say(plan.describe())
    if not (arguments.yes or _confirmed(plan)):
        say("nothing was started")
        return 2
    batch = submit_plan(plan, force=arguments.force)
    wait = arguments.wait if arguments.wait is not None else batch.profile.executor == "local"
    if wait:
        return _wait(batch, plan, arguments)
    _detach(batch, [job.name for job in plan.submits], arguments.json)
    return 0


def _show_parameters(notebook: Path, as_json: bool) -> None:
    from marlnb.batch.batch import BATCH, SOURCE
    from marlnb.batch.sweep.parameters import read_parameters

    parameters = read_parameters(notebook / SOURCE if (notebook / BATCH).is_file() else notebook)
    if as_json:
        keys = ("takes", "default", "code", "help")
        return print_json({name: {key: getattr(each, key) for key in keys} for name, each in parameters.items()})
    if not parameters:
        raise ConfigError(
            f"{notebook} has no parameters; tag a cell `parameters` in JupyterLab and assign them there, e.g. seed = 0"
        )
    rows = [[each.name, each.takes, each.code or "(required)", each.help] for each in parameters.values()]
    print_table(["parameter", "takes", "default", "meaning"], rows)


def _show_plan(plan: SubmissionPlan, as_json: bool) -> None:
    from marlnb.batch.executor import executor_of

    jobs = plan.submits
    script = executor_of(plan.batch).preview(plan.batch, jobs, then=plan.report is not None) if jobs else ""
    if as_json:
        return print_json({**plan.to_json(), "script": script})
    print_text(plan.describe())
    if script:
        print_text(f"\n{script}", end="")


def _confirmed(plan: SubmissionPlan) -> bool:
    """Asks a person at a terminal before many jobs, or jobs on a cluster, start; True without a terminal."""
    is_small = len(plan.submits) <= MAX_UNASKED_JOBS and plan.batch.profile.executor == "local"
    if is_small or not plan.submits or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    say(f"start {count(len(plan.submits), 'job')}? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _detach(batch: Batch, submitted: list[str], as_json: bool) -> None:
    if as_json:
        return print_json({"batch": str(batch.path), "submitted": submitted})
    jobs = count(len(submitted), "job")
    print_text(batch.path)
    see, wait = (marlnb_command(verb, batch.path) for verb in ("jobs", "watch"))
    say(f"{jobs} submitted; to see them: {see}; to wait: {wait}")


def _wait(batch: Batch, plan: SubmissionPlan, arguments: argparse.Namespace) -> int:
    from marlnb.batch.monitor import watch
    from marlnb.cli.batches.jobs import end_of_batch

    silent = arguments.quiet or arguments.json
    is_local = batch.profile.executor == "local"
    try:
        batch = watch(batch, only=plan.awaited, progress=not silent, owns=is_local)
    except KeyboardInterrupt:
        if is_local:
            again = marlnb_command("batch", batch.path) + "".join(f" --only {shlex.quote(job)}" for job in plan.only)
            say(f"the jobs have saved and stopped; to continue: {again}")
        else:
            watching, end = (marlnb_command(verb, batch.path) for verb in ("watch", "cancel"))
            say(f"the jobs keep running; to watch: {watching}; to end them: {end}")
        return INTERRUPTED
    return end_of_batch(batch, plan.awaited, as_json=arguments.json, show_failures=silent)

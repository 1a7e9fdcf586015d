"""Show the jobs of a batch: state, progress, attempts, and errors.

examples:
  marlnb jobs runs/quickstart-batch
  marlnb jobs runs/quickstart-batch --log algorithm=mappo,seed=3
  marlnb jobs                          # every batch in runs/

Exit codes: 0 every job is complete; 1 a job failed; 75 none failed, but not all are complete yet;
130 interrupted while watching. For a folder of batches: 1 one of them cannot be read, else 0.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.exit_codes import FAILED, INTERRUPTED
from marlnb.cli.output import print_json, print_table, print_text, say
from marlnb.display.formatting import count, marlnb_command
from marlnb.errors import ConfigError
from marlnb.paths import expanded

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from marlnb.batch.batch import Batch
    from marlnb.batch.overview import JobRow

NOT_YET = os.EX_TEMPFAIL
MAX_FAILURES_SHOWN = 5
N_LINES = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("batch", nargs="?", default="runs", metavar="BATCH", help="a batch, or a folder of batches (default runs)")
    add("--log", metavar="JOB", help="print the end of this job's log")
    add("--lines", type=int, metavar="N", help=f"lines of the log (default {N_LINES})")
    add("--watch", action="store_true", help="wait until all have ended; restart nothing")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.batch import BATCH, Batch

    n_lines = N_LINES if arguments.lines is None else arguments.lines
    if arguments.lines is not None and not arguments.log:
        raise ConfigError("--lines is the number of lines of a job's log; add --log JOB")
    if n_lines < 1:
        raise ConfigError(f"--lines: expected a whole number of at least 1; got {n_lines}")
    path = expanded(arguments.batch)
    is_other = any((path / name).is_file() for name in ("job.json", "experiment.json"))  # a job or a run, by mistake
    if not (path / BATCH).is_file() and not arguments.log and not arguments.watch and not is_other:
        return _list(path, arguments.json)
    batch = Batch.open(path)
    if arguments.log:
        _show_log(batch, arguments.log, n_lines)
        return 0
    if arguments.watch:
        from marlnb.batch.monitor import watch

        try:
            batch = watch(batch, progress=not arguments.json, resubmit=False)
        except KeyboardInterrupt:
            return INTERRUPTED
    return show(batch, as_json=arguments.json, show_failures=not arguments.watch)


def show(batch: Batch, *, as_json: bool, show_failures: bool = True) -> int:
    """Prints the table of jobs, and descriptions of failed jobs (which watching has already printed)."""
    from marlnb.batch.overview import HEADER, job_rows, query_executor, summarize

    infos, problem = query_executor(batch)
    rows = job_rows(batch, infos)
    if as_json:
        _print_rows(batch, rows)
    else:
        print_table(HEADER, [row.cells() for row in rows])
        print_text(f"\n{batch.path}: {count(len(batch.sweep), 'job')}: {summarize(rows)}")
        if show_failures:
            _show_failures(rows)
    if problem:
        say(problem)
    return exit_code(rows)


def end_of_batch(batch: Batch, only: Collection[str] = (), *, as_json: bool, show_failures: bool) -> int:
    """Prints the batch's folder, its report and failures after a wait for the jobs of `only`, or for all."""
    from marlnb.batch.monitor import awaited
    from marlnb.batch.overview import job_rows, summarize

    rows = job_rows(batch)
    names = awaited({row.job.name: row.status for row in rows}, only or [row.job.name for row in rows])
    results = [row for row in rows if row.job.name in names]
    if as_json:
        _print_rows(batch, rows)
    else:
        print_text(f"{batch.path}: {summarize(rows)}")
        if batch.then is not None and rows[-1].state == "complete":
            print_text(batch.report_job().folder / "notebook.html")
        elif batch.then is not None and rows[-1].state != "failed":
            again = marlnb_command("batch", batch.path)
            say(f"{batch.then} did not run: not all jobs are complete; to complete them: {again}")
    if show_failures:
        _show_failures(results)
    return 0 if exit_code(results) == 0 else FAILED


def exit_code(rows: Sequence[JobRow]) -> int:
    states = {row.state for row in rows}
    return FAILED if "failed" in states else 0 if states == {"complete"} else NOT_YET


def _print_rows(batch: Batch, rows: Sequence[JobRow]) -> None:
    print_json({"batch": str(batch.path), "notebook": batch.notebook, "jobs": [row.to_json() for row in rows]})


def _show_failures(rows: Sequence[JobRow]) -> None:
    from marlnb.batch.job.failures import describe_failure

    failed = [row for row in rows if row.state == "failed"]
    for row in failed[:MAX_FAILURES_SHOWN]:
        say(f"\n{describe_failure(row.job, row.status)}")
    if len(failed) > MAX_FAILURES_SHOWN:
        others = ", ".join(row.job.name for row in failed[MAX_FAILURES_SHOWN:])
        say(f"\n{len(failed) - MAX_FAILURES_SHOWN} more failed: {others}; --log JOB shows a job's log")


def _show_log(batch: Batch, name: str, n_lines: int) -> None:
    from marlnb.batch.job.failures import read_tail

    job = batch.job(name)
    lines = read_tail(job.log, n_lines)
    if not lines:
        say(f"{job.log} is empty or does not exist yet: the job is {job.status().state}")
    for line in lines:
        print_text(line)


def _list(folder: Path, as_json: bool) -> int:
    from marlnb.batch.overview import summaries

    batches, problems = summaries(folder)
    if as_json:
        states = {str(path): summary for path, (_, summary) in batches.items()}
        print_json({"batches": states, "problems": problems})
    elif batches:
        rows = [
            [os.path.relpath(path), batch.notebook, len(batch.sweep), text] for path, (batch, text) in batches.items()
        ]
        print_table(["batch", "notebook", "jobs", "states, from the files"], rows)
    elif not problems:
        say(f"no batches in {folder}; `marlnb batch NOTEBOOK` makes one")
    if not as_json:
        for problem in problems:
            say(f"left out: {problem}")
    return FAILED if problems else 0

"""Show the jobs of a batch: state, progress, attempts, and what went wrong.

examples:
  marlnb jobs runs/quickstart-batch
  marlnb jobs runs/quickstart-batch --log algorithm=mappo,seed=3
  marlnb jobs                          # every batch below runs/

Exit codes: 0 every job is complete; 1 one failed; 75 none failed, but not all are complete (yet);
130 interrupted while watching.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from marlnb.batch.batch import Batch
    from marlnb.batch.overview import Row

FAILED, NOT_YET, INTERRUPTED = 1, os.EX_TEMPFAIL, 130
MOST_FAILURES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("batch", nargs="?", default="runs", metavar="BATCH", help="a batch, or a folder of batches")
    parser.add_argument("--log", metavar="JOB", help="print the end of a job's log")
    parser.add_argument("--lines", type=int, default=100, metavar="N", help="lines of the log (default %(default)s)")
    parser.add_argument("--watch", action="store_true", help="until all have ended; nothing is begun again")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.batch import BATCH, Batch

    path = Path(arguments.batch).expanduser()
    if not (path / BATCH).is_file() and not arguments.log and not arguments.watch and not _is_named(arguments):
        return _list(path, arguments.json)
    batch = Batch.open(path)
    if arguments.log:
        return _show_log(batch, arguments.log, arguments.lines)
    if arguments.watch:
        from marlnb.batch.watch import watch

        try:
            batch = watch(batch, progress=not arguments.json, resubmit=False)
        except KeyboardInterrupt:
            return INTERRUPTED
    return show(batch, as_json=arguments.json, tell_failures=not arguments.watch)


def show(batch: Batch, *, as_json: bool, tell_failures: bool = True) -> int:
    """Prints the table, then what is known of jobs that failed, which watching has told already."""
    from marlnb.batch.overview import HEADER, ask, rows, summary

    known, complaint = ask(batch)
    found = rows(batch, known)
    if as_json:
        print_json({"batch": str(batch.path), "notebook": batch.notebook, "jobs": [row.to_json() for row in found]})
    else:
        print_table(HEADER, [row.cells() for row in found])
        print(f"\n{batch.path}: {len(batch.sweep)} jobs: {summary(found)}")
        if tell_failures:
            _tell_failures(found)
    if complaint:
        say(complaint)
    return exit_code(found)


def end_of_batch(batch: Batch, *, as_json: bool, tell_failures: bool) -> int:
    """What is printed when a batch has been waited for: where it is, what failed, the report."""
    from marlnb.batch.overview import rows, summary

    found = rows(batch)
    if as_json:
        print_json({"batch": str(batch.path), "notebook": batch.notebook, "jobs": [row.to_json() for row in found]})
    else:
        print(f"{batch.path}: {summary(found)}")
        if batch.then is not None and found[-1].state == "complete":
            print(batch.report_job().folder / "notebook.html")
        elif batch.then is not None and found[-1].state != "failed":
            say(f"{batch.then} was not run: not all jobs are complete; `marlnb batch {batch.path}` goes on with them")
    if tell_failures:
        _tell_failures(found)
    return 0 if exit_code(found) == 0 else FAILED


def exit_code(found: Sequence[Row]) -> int:
    states = {row.state for row in found}
    return FAILED if "failed" in states else 0 if states == {"complete"} else NOT_YET


def _tell_failures(found: Sequence[Row]) -> None:
    from marlnb.batch.job.failures import describe_failure

    failed = [row for row in found if row.state == "failed"]
    for row in failed[:MOST_FAILURES]:
        say(f"\n{describe_failure(row.job, row.status)}")
    if len(failed) > MOST_FAILURES:
        others = ", ".join(row.job.name for row in failed[MOST_FAILURES:])
        say(f"\n{len(failed) - MOST_FAILURES} more failed: {others}; --log JOB shows a job's log")


def _show_log(batch: Batch, name: str, lines: int) -> int:
    from marlnb.batch.job.failures import last_lines

    job = batch.job(name)
    found = last_lines(job.log, lines)
    if not found:
        say(f"{job.log} is empty or not there yet: the job is {job.status().state}")
    for line in found:
        print(line)
    return 0


def _list(folder: Path, as_json: bool) -> int:
    from marlnb.batch.overview import find_batches, rows, summary

    found = [(batch, rows(batch)) for batch in find_batches(folder)]
    if as_json:
        print_json({"batches": {str(batch.path): summary(each) for batch, each in found}})
    elif found:
        shown = [
            [os.path.relpath(batch.path), batch.notebook, len(batch.sweep), summary(each)] for batch, each in found
        ]
        print_table(["batch", "notebook", "jobs", "states, as the files say"], shown)
    else:
        say(f"no batches below {folder}")
    return 0


def _is_named(arguments: argparse.Namespace) -> bool:
    """Whether the folder is something else that a person may have taken for a batch."""
    return any((Path(arguments.batch).expanduser() / name).is_file() for name in ("job.json", "experiment.json"))

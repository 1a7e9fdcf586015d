"""Watch a batch until it has ended, and restart jobs that were killed or lost.

Progress is read from the jobs' files, on any machine that sees the folder. A job that was killed, dropped by the
scheduler or lost with its node is submitted again, up to `resubmits` of the profile; events.log has the reasons.
Jobs that were never submitted do not start. Ctrl-C ends only the watching: the jobs keep running.

  marlnb watch runs/sweep                     in tmux or screen on the login node
  marlnb watch runs/sweep --once              check once: for cron or scrontab, as */10 * * * *
  marlnb watch runs/sweep --no-resubmit       restart nothing

Exit codes: 0 all jobs are complete; 1 some failed, were never submitted, or are missing with --no-resubmit; 130 some
were stopped, or the watching was interrupted. With --once also 0 while jobs run.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from marlnb.cli.exit_codes import FAILED, INTERRUPTED
from marlnb.cli.output import print_json, print_text, quiet_stdout, say
from marlnb.display.formatting import marlnb_command
from marlnb.errors import BatchError

if TYPE_CHECKING:
    from marlnb.batch.batch import Batch

MAX_POLL_S = 24 * 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("batch", metavar="BATCH", help="the batch's folder")
    add("--no-resubmit", action="store_true", help="restart nothing")
    add("--once", action="store_true", help="restart what has to be restarted, then return")
    add("--poll", type=float, default=2.0, metavar="S", help="seconds between two reads of the files (default 2)")
    add("--quiet", action="store_true", help="no progress")
    add("--json", action="store_true", help="print one JSON object at the end and nothing else")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.batch.batch import Batch
    from marlnb.batch.monitor import watch

    if not 0 < arguments.poll <= MAX_POLL_S:
        raise BatchError(f"--poll must be above 0 and at most {MAX_POLL_S:,} s; got {arguments.poll:g}")
    batch = Batch.open(arguments.batch)
    with quiet_stdout():
        try:
            batch = watch(
                batch,
                progress=not arguments.quiet,
                poll_s=arguments.poll,
                resubmit=not arguments.no_resubmit,
                once=arguments.once,
            )
        except KeyboardInterrupt:
            again, end = (marlnb_command(verb, batch.path) for verb in ("watch", "cancel"))
            say(f"to watch again: {again}; to end the jobs: {end}")
            return INTERRUPTED
    return _end(batch, once=arguments.once, as_json=arguments.json)


def _end(batch: Batch, *, once: bool, as_json: bool) -> int:
    from marlnb.batch.batch import REPORT

    states = {name: status.state for name, status in batch.statuses().items()}
    if batch.then is not None:
        states[REPORT] = batch.report_job().status().state
    counts = Counter(state for name, state in states.items() if name != REPORT)
    if as_json:
        print_json({"folder": str(batch.path), "counts": dict(counts), "jobs": states})
    else:
        print_text(f"{batch.path}: " + ", ".join(f"{count} {state}" for state, count in counts.most_common()))
    results = {state for name, state in states.items() if name != REPORT or counts["complete"] == len(states) - 1}
    if "failed" in results:
        return FAILED
    if once or results == {"complete"}:
        return 0
    return INTERRUPTED if "stopped" in results else FAILED

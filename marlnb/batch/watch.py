"""Watch: shows a batch until it has ended, and begins again what was dropped, whoever runs its jobs."""

from __future__ import annotations

import time
from typing import TextIO

from marlnb.batch.batch import Batch
from marlnb.batch.executor import Known
from marlnb.batch.interrupt import signals_interrupt
from marlnb.batch.job.failures import describe_failure
from marlnb.batch.job.job import Job
from marlnb.batch.progress_display import Board
from marlnb.batch.watcher import ENDED, Watcher

MOST_TOLD = 10


def watch(
    batch: Batch,
    *,
    progress: bool = True,
    poll_s: float = 2.0,
    resubmit: bool = True,
    owns: bool = False,
    once: bool = False,
    stream: TextIO | None = None,
) -> Batch:
    """Returns when every job is complete, failed or stopped, and the report too where all are complete.

    A job that was killed, lost or never begun, and of which the executor says that it will not run by itself, is
    submitted again, with the reason in the batch's `events.log`, up to `resubmits` of its profile; then it counts as
    failed. Jobs that failed or were stopped are left. One watcher at a time does that, others look on.

    Args:
        poll_s: how often files are read, in seconds; the executor is asked more seldom, as it says itself.
        resubmit: False only watches, and returns when nothing runs or is queued any more.
        owns: an interrupt ends the jobs, each saved; otherwise they go on without being watched.
        once: looks until it is known what has to be begun again, begins that, and returns.
        stream: where progress is shown; none: stderr, or the notebook.
    Raises:
        KeyboardInterrupt: interrupted, also by SIGTERM or SIGUSR1.
        BatchError: the executor cannot cancel what it was asked to.
    """
    board = Board(stream, silent=not progress)
    watcher = Watcher(batch, board, resubmit=resubmit)
    with signals_interrupt():
        try:
            while not (watcher.look() or (once and watcher.is_sure)):
                time.sleep(poll_s)
        except KeyboardInterrupt:
            if owns:
                _end(watcher, board, poll_s)
            else:
                board.say("no longer watched; the jobs go on")
            raise
        finally:
            watcher.release()
            board.close()
    if not once:
        for job in watcher.failed()[:MOST_TOLD]:
            board.say(describe_failure(job))
    return watcher.batch


def _end(watcher: Watcher, board: Board, poll_s: float) -> None:
    """Cancels all that has not ended, and waits until it is saved."""
    board.say("stopping: each job is saved first; interrupt again to leave that to them")
    jobs = [watcher.batch.job(name) for name, status in watcher.statuses.items() if status.state not in ENDED]
    jobs = [job for job in jobs if job.folder.exists()]  # a report that has not begun has none
    watcher.executor.cancel(watcher.batch, jobs)
    while any(job.is_held or _is_coming(watcher, job) for job in jobs):
        time.sleep(poll_s)
    board.say(f"{len(jobs)} jobs stopped")


def _is_coming(watcher: Watcher, job: Job) -> bool:
    return watcher.executor.known(watcher.batch).get(job.name, Known("unknown")).state in ("queued", "running")

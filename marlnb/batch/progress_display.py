"""Board: how far a batch is, over all of its jobs, and what those that run are doing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from marlnb.batch.job.job import Job, JobStatus
from marlnb.batch.job.progress import begun_run
from marlnb.errors import RunError
from marlnb.formatting import format_clock
from marlnb.training.progress import BAR_WIDTH, StatusLine
from marlnb.training.runs.files import STATUS, read_json

MOST_SHOWN = 20
MOST_DONE = 0.99  # of a job that is not complete: cells follow its training
ORDER = ("complete", "running", "waiting", "interrupted", "stopped", "failed")


class Board:
    """One text, rewritten in a terminal or a notebook, added now and then to a log; and lines that stay.

    The rate, and with it the time left, is that of this session: jobs a hour, where a job that is half trained counts
    as half a job.
    """

    def __init__(self, stream: TextIO | None = None, *, silent: bool = False) -> None:
        self._line = None if silent else StatusLine(stream)
        self._began = time.monotonic()
        self._done_before: float | None = None
        self._newest = ""

    def show(self, jobs: Mapping[str, Job], statuses: Mapping[str, JobStatus], queue: Mapping[str, str]) -> None:
        """Shows the batch when the last showing is long enough ago.

        Args:
            queue: by name, why a job that waits does so.
        """
        if self._line is None or not self._line.due:
            return
        done = sum(share_done(jobs[name], status) for name, status in statuses.items())
        if self._done_before is None:
            self._done_before = done
        elapsed = time.monotonic() - self._began
        rate = (done - self._done_before) / elapsed if elapsed > 0 else 0.0
        lines = [overall(statuses, done, rate, bar=self._line.live), *running(statuses), *waiting(statuses, queue)]
        self._newest = "\n".join(lines) if self._line.live else "; ".join(line.strip() for line in lines)
        self._line.write(self._newest)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._line is not None:
            self._line.say(text)
            if self._newest and self._line.live:
                self._line.write(self._newest)

    def close(self) -> None:
        if self._line is not None:
            self._line.end()


def overall(statuses: Mapping[str, JobStatus], done: float, rate: float, *, bar: bool = False) -> str:
    """`12/20 complete, 4 running, 3 waiting, 1 failed   68%  ███··  3.1 jobs/h  1:50:12 left`

    Args:
        done: jobs, those that run counted by the share of their training. rate: jobs a second.
    """
    counts: Counter[str] = Counter(status.state for status in statuses.values())
    size = max(1, len(statuses))
    told = [f"{counts['complete']}/{len(statuses)} complete"]
    told += [f"{counts[state]} {state}" for state in ORDER[1:] if counts[state]]
    share = min(1.0, done / size)
    parts = [", ".join(told), f"{share:4.0%}"]
    if bar:
        filled = int(share * BAR_WIDTH)
        parts.append(f"{'█' * filled}{'·' * (BAR_WIDTH - filled)}")
    left = size - done - counts["failed"] - counts["stopped"]
    if rate > 0 and left > 1e-9:
        parts += [f"{rate * 3600:.3g} jobs/h", f"{format_clock(left / rate)} left"]
    return "  ".join(parts)


def running(statuses: Mapping[str, JobStatus]) -> list[str]:
    """A line a job that runs."""
    found = [
        f"  {name}: cell {status.cell} of {status.n_cells}" + (f", {status.progress}" if status.progress else "")
        for name, status in statuses.items()
        if status.state == "running"
    ]
    return found if len(found) <= MOST_SHOWN else [*found[:MOST_SHOWN], f"  and {len(found) - MOST_SHOWN} more"]


def waiting(statuses: Mapping[str, JobStatus], queue: Mapping[str, str]) -> list[str]:
    """A line for each reason for which jobs wait."""
    reasons = Counter(
        queue[name]
        for name, status in statuses.items()
        if status.state in ("waiting", "interrupted") and queue.get(name)
    )
    return [f"  {count} waiting: {reason}" for reason, count in reasons.most_common(3)]


def share_done(job: Job, status: JobStatus) -> float:
    """How much of a job is done, by the frames of its training; 0 where that cannot be told."""
    if status.state == "complete":
        return 1.0
    if status.attempt == 0:
        return 0.0
    try:
        run = read_json(begun_run(job.folder) / STATUS)
        return min(MOST_DONE, run.get("frames", 0) / run["frames_total"])
    except (RunError, KeyError, TypeError, ZeroDivisionError):
        return 0.0

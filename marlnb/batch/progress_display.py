"""Progress of a batch: how many jobs are complete, and what the running ones do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from marlnb.batch.job.job import Job, JobStatus
from marlnb.batch.job.training_progress import run_of_job
from marlnb.display.formatting import format_clock
from marlnb.display.status_line import StatusLine, progress_bar
from marlnb.errors import RunError
from marlnb.training.runs.files import STATUS, read_json

MAX_SHOWN = 20
MAX_UNFINISHED_SHARE = 0.99  # of a job that is not complete: other cells follow its training
STATES = ("complete", "running", "waiting", "interrupted", "stopped", "failed")


class BatchProgress:
    """Shows progress as text that is rewritten in a terminal or notebook, or added to a log now and then.

    The rate, and with it the time left, is that of this session in jobs per hour; a half-trained job counts as half.

    Args:
        stream: where it is shown; None: stderr, or the notebook.
        silent: show nothing.
    """

    def __init__(self, stream: TextIO | None = None, *, silent: bool = False) -> None:
        self._line = None if silent else StatusLine(stream)
        self._started = time.monotonic()
        self._done_before: float | None = None
        self._text = ""

    def show(self, jobs: Mapping[str, Job], statuses: Mapping[str, JobStatus], queue: Mapping[str, str]) -> None:
        """Updates the text, unless it was updated a moment ago.

        Args:
            queue: by job name, why a queued job waits.
        """
        if self._line is None or not self._line.due:
            return
        done = sum(share_done(jobs[name], status) for name, status in statuses.items())
        if self._done_before is None:
            self._done_before = done
        elapsed = time.monotonic() - self._started
        rate = (done - self._done_before) / elapsed if elapsed > 0 else 0.0
        lines = [
            summary_line(statuses, done, rate, bar=self._line.live),
            *_running_lines(statuses),
            *_waiting_lines(statuses, queue),
        ]
        self._text = "\n".join(lines) if self._line.live else "; ".join(line.strip() for line in lines)
        self._line.write(self._text)

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        if self._line is not None:
            self._line.say(text)
            if self._text and self._line.live:
                self._line.write(self._text)

    def close(self) -> None:
        if self._line is not None:
            self._line.end()


def summary_line(statuses: Mapping[str, JobStatus], done: float, rate: float, *, bar: bool = False) -> str:
    """`12/20 complete, 4 running, 3 waiting, 1 failed   68%  ███··  3.1 jobs/h  1:50:12 left`

    Args:
        done: number of jobs done; a running job counts with the share of its training.
        rate: jobs per second.
    """
    counts: Counter[str] = Counter(status.state for status in statuses.values())
    n_jobs = max(1, len(statuses))
    states = [f"{counts['complete']}/{len(statuses)} complete"]
    states += [f"{counts[state]} {state}" for state in STATES[1:] if counts[state]]
    share = min(1.0, done / n_jobs)
    parts = [", ".join(states), f"{share:4.0%}"]
    if bar:
        parts.append(progress_bar(share))
    remaining = n_jobs - done - counts["failed"] - counts["stopped"]
    if rate > 0 and remaining > 1e-9:
        parts += [f"{rate * 3600:.3g} jobs/h", f"{format_clock(remaining / rate)} left"]
    return "  ".join(parts)


def _running_lines(statuses: Mapping[str, JobStatus]) -> list[str]:
    lines = [f"  {name}: {status.position}" for name, status in statuses.items() if status.state == "running"]
    return lines if len(lines) <= MAX_SHOWN else [*lines[:MAX_SHOWN], f"  and {len(lines) - MAX_SHOWN} more"]


def _waiting_lines(statuses: Mapping[str, JobStatus], queue: Mapping[str, str]) -> list[str]:
    """One line for each of the three most frequent reasons to wait."""
    waiting = [name for name, status in statuses.items() if status.state in ("waiting", "interrupted")]
    reasons = Counter(queue[name] for name in waiting if queue.get(name))
    return [f"  {count} waiting: {reason}" for reason, count in reasons.most_common(3)]


def share_done(job: Job, status: JobStatus) -> float:
    """The share of a job that is done, by the frames of its training; 0 if the training has no status."""
    if status.state == "complete":
        return 1.0
    if status.attempt == 0:
        return 0.0
    try:
        run = read_json(run_of_job(job.folder) / STATUS)
        return min(MAX_UNFINISHED_SHARE, run.get("frames", 0) / run["frames_total"])
    except (RunError, KeyError, TypeError, ZeroDivisionError):
        return 0.0

"""How often a job was restarted since a person last submitted it, and what happens when that was too often."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.job.job import Job
from marlnb.batch.local.supervisor_files import read_entries
from marlnb.batch.submission import SUBMITTED, Submission


def count_restarts(batch: Batch) -> Counter[str]:
    """Restarts by job name.

    A submission with a reason is a restart; a submission without one was made by a person and resets the count. The
    count is read from the batch's files, so a new monitor or supervisor continues with it.
    """
    counts: Counter[str] = Counter()
    for folder in batch.submissions():
        if not (folder / SUBMITTED).exists():
            continue
        submission = Submission.read(folder)
        for name in submission.jobs:
            counts[name] = counts[name] + 1 if submission.reason else 0
        if submission.then and not submission.reason:
            counts[REPORT] = 0
        for name, entry in read_entries(folder).items():
            counts[name] += entry.restarts
    return counts


def give_up(job: Job, reason: str, resubmits: int) -> str:
    """Marks a job as failed that was restarted `resubmits` times; returns the message."""
    message = f"{reason}; given up after {resubmits} restarts, the limit set by `resubmits` of the profile"
    job.write_status(replace(job.status(), state="failed", reason=message))
    return message

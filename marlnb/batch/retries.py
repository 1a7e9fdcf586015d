"""Again: how often a job was begun again since a person last asked for it, and what happens when that was too often."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from marlnb.batch.local.record import read_entries
from marlnb.training.runs.files import read_json

if TYPE_CHECKING:
    from marlnb.batch.batch import Batch
    from marlnb.batch.job.job import Job


def times_begun_again(batch: Batch) -> Counter[str]:
    """By job's name. A submission with a reason is one time; one without, which a person made, begins the count anew.

    It is told by the batch's files alone, so that a watcher or a supervisor that is begun anew keeps the count.
    """
    counts: Counter[str] = Counter()
    for folder in batch.submissions():
        if not (folder / "jobs.json").exists():
            continue
        asked = read_json(folder / "jobs.json")
        for name in asked["jobs"]:
            counts[name] = counts[name] + 1 if asked["reason"] else 0
        for name, entry in read_entries(folder).items():
            counts[name] += entry.begun_again
    return counts


def give_up(job: Job, reason: str, resubmits: int) -> str:
    """Makes a job that was begun again `resubmits` times a failed one; returns why."""
    told = f"{reason}; it was begun again {resubmits} times already, as often as the profile's resubmits: given up"
    job.write_status(replace(job.status(), state="failed", reason=told))
    return told

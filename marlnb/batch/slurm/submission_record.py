"""The record of a submission, `submissions/<n>/slurm.json`: which SLURM task runs which job."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.slurm.script import REPORT_LOG, Part
from marlnb.batch.submission import SUBMITTED, Submission
from marlnb.errors import RunError
from marlnb.training.runs.files import write_atomically
from marlnb.training.runs.records import read_record

RECORD = "slurm.json"


@dataclass(frozen=True)
class Array:
    """One array that sbatch accepted.

    Attributes:
        id: SLURM's id.
        part: which jobs of the submission it has.
    """

    id: int
    part: Part


@dataclass(frozen=True)
class SubmissionRecord:
    """What SLURM accepted.

    Attributes:
        accounting: whether `sacct` works here.
        cluster: name of the cluster if it is not this login node's own, else empty.
        arrays: the arrays of the jobs.
        report: id of the report's array; None without one.
        folder: the submission's, without symbolic links: in a copy of it, and in one that another person made, the
            record says nothing of this batch.
    """

    accounting: bool
    cluster: str = ""
    arrays: tuple[Array, ...] = ()
    report: int | None = None
    folder: str = ""

    def write(self, submission: Path) -> None:
        here = replace(self, folder=os.path.realpath(submission))
        write_atomically(submission / RECORD, json.dumps(asdict(here), indent=2) + "\n")

    @staticmethod
    def read(submission: Path) -> SubmissionRecord:
        return read_record(submission / RECORD, SubmissionRecord)


@dataclass(frozen=True)
class Task:
    """A SLURM task of a job.

    Attributes:
        id: as `17_3`.
        array: id of its array, as 17.
        when: time of the submission, in seconds since 1970.
        updated: the time in the job's status when it was submitted.
        log: output of SLURM and of the script, before the job's own log starts.
        record: record of the submission.
    """

    id: str
    array: int
    when: float
    updated: float
    log: Path
    record: SubmissionRecord


def tasks(batch: Batch) -> dict[str, Task]:
    """The newest task of each submitted job, and of the report, by name."""
    return {name: of_job[-1] for name, of_job in all_tasks(batch).items()}


def all_tasks(batch: Batch) -> dict[str, list[Task]]:
    """The tasks of each submitted job, and of the report, by name, oldest first.

    Submissions that sbatch refused have no record and are skipped, as are records of another folder: cancelling a
    copy must not end the jobs of the original.
    """
    by_name: dict[str, list[Task]] = {}
    for submission in batch.submissions():
        if not (submission / RECORD).exists():
            continue
        record, content = SubmissionRecord.read(submission), Submission.read(submission)
        if record.folder != os.path.realpath(submission):
            continue
        for array in record.arrays:
            for task, name in enumerate(_jobs_of(array.part, content, submission)):
                log = submission / array.part.log(task)
                updated = content.updated.get(name, 0.0)
                new = Task(f"{array.id}_{task}", array.id, content.when, updated, log, record)
                by_name.setdefault(name, []).append(new)
        if record.report is not None:
            id, updated, log = record.report, content.updated.get(REPORT, 0.0), submission / REPORT_LOG
            by_name.setdefault(REPORT, []).append(Task(f"{id}_0", id, content.when, updated, log, record))
    return by_name


def _jobs_of(part: Part, content: Submission, submission: Path) -> tuple[str, ...]:
    """The names of an array's jobs. Raises RunError: the submission has fewer."""
    last = part.first + part.count
    if not 0 <= part.first <= last <= len(content.jobs):
        raise RunError(
            f"{submission / RECORD} is damaged: an array of the jobs {part.first} to {last - 1}; "
            f"{SUBMITTED} has {len(content.jobs)}"
        )
    return content.jobs[part.first : last]

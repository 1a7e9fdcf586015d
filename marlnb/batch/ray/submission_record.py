"""The record of a submission, `submissions/<n>/ray.json`: the cluster's address, and which Ray job runs which job."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import Job
from marlnb.batch.submission import Submission
from marlnb.training.runs.files import write_atomically
from marlnb.training.runs.records import read_record

RECORD = "ray.json"


@dataclass(frozen=True)
class SubmissionRecord:
    """What was submitted.

    Attributes:
        address: of the cluster's dashboard.
        ids: Ray's id of each job by the job's name.
    """

    address: str
    ids: Mapping[str, str]

    def write(self, submission: Path) -> None:
        write_atomically(submission / RECORD, json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(submission: Path) -> SubmissionRecord:
        """The record in a folder. Raises RunError: the file is missing or damaged."""
        return read_record(submission / RECORD, SubmissionRecord)


@dataclass(frozen=True)
class SubmittedJob:
    """A Ray job of a job.

    Attributes:
        id: Ray's id.
        address: of the cluster's dashboard.
        updated: the time in the job's status when it was submitted.
    """

    id: str
    address: str
    updated: float


def new_id(job: Job) -> str:
    """An id for one execution of a job: a digest of the job's folder, and a random token."""
    return f"{_prefix(job)}-{secrets.token_hex(4)}"


def submitted_jobs(batch: Batch) -> dict[str, SubmittedJob]:
    """The newest Ray job of each submitted job, and of the report, by name."""
    return {name: of_job[-1] for name, of_job in all_submitted_jobs(batch).items()}


def all_submitted_jobs(batch: Batch) -> dict[str, list[SubmittedJob]]:
    """The Ray jobs of each submitted job, and of the report, by name, oldest first.

    Ids that were not made for this folder are left out: a copy of a batch, or one that another person made, must
    not end jobs of another folder.
    """
    jobs = {job.name: job for job in [*batch.jobs(), *([batch.report_job()] if batch.then else [])]}
    by_name: dict[str, list[SubmittedJob]] = {}
    for submission in batch.submissions():
        if (submission / RECORD).exists():
            record, updated = SubmissionRecord.read(submission), Submission.read(submission).updated
            for name, id in record.ids.items():
                if name in jobs and re.fullmatch(rf"{_prefix(jobs[name])}-[0-9a-f]{{8}}", id):
                    new = SubmittedJob(id, record.address, updated.get(name, 0.0))
                    by_name.setdefault(name, []).append(new)
    return by_name


def _prefix(job: Job) -> str:
    folder = os.path.realpath(job.folder)  # whichever link leads to it
    return f"marlnb-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"

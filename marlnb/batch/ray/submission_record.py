"""The record of a submission, `submissions/<n>/ray.json`: the cluster's address, and which Ray job runs which job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.batch.batch import Batch
from marlnb.training.runs.files import read_json, write_atomically

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
        data = read_json(submission / RECORD)
        return SubmissionRecord(data["address"], dict(data["ids"]))


@dataclass(frozen=True)
class SubmittedJob:
    """The newest Ray job of a job.

    Attributes:
        id: Ray's id.
        address: of the cluster's dashboard.
        when: time of the submission, in seconds since 1970.
    """

    id: str
    address: str
    when: float


def submitted_jobs(batch: Batch) -> dict[str, SubmittedJob]:
    """The newest Ray job of each submitted job, and of the report, by name."""
    by_name: dict[str, SubmittedJob] = {}
    for submission in batch.submissions():
        if (submission / RECORD).exists():
            record, when = SubmissionRecord.read(submission), float(read_json(submission / "jobs.json")["when"])
            by_name |= {name: SubmittedJob(id, record.address, when) for name, id in record.ids.items()}
    return by_name

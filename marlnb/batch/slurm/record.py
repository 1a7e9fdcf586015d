"""What a submission became: `submissions/<n>/slurm.json`, from which every later question about its jobs begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.slurm.script import REPORT_LOG, Part
from marlnb.training.runs.files import read_json, write_atomically

RECORD = "slurm.json"


@dataclass(frozen=True)
class Array:
    """One array that sbatch accepted: its id, and the jobs that it has."""

    id: int
    part: Part


@dataclass(frozen=True)
class Record:
    """What sbatch answered.

    Attributes:
        accounting: whether `sacct` answers here.
        cluster: the name of another cluster than this login node's own, else empty.
        report: the id of the report's array, None without one.
    """

    accounting: bool
    cluster: str = ""
    arrays: Sequence[Array] = ()
    report: int | None = None

    def write(self, submission: Path) -> None:
        write_atomically(submission / RECORD, json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(submission: Path) -> Record:
        data = read_json(submission / RECORD)
        arrays = [Array(array["id"], Part(**array["part"])) for array in data["arrays"]]
        return Record(data["accounting"], data["cluster"], arrays, data["report"])


@dataclass(frozen=True)
class Task:
    """A job as SLURM was last given it.

    Attributes:
        id: as `17_3`. array: the number before it.
        when: seconds since 1970.
        log: what SLURM and the script said before the job's own log began.
    """

    id: str
    array: int
    when: float
    log: Path
    record: Record


def tasks(batch: Batch) -> dict[str, Task]:
    """Each job by name (and the report) as the newest submission has it; a job that never was submitted is not there.

    A submission that sbatch refused has no record, and is passed over.
    """
    found: dict[str, Task] = {}
    for submission in batch.submissions():
        if not (submission / RECORD).exists():
            continue
        record, asked = Record.read(submission), read_json(submission / "jobs.json")
        when = float(asked["when"])
        for array in record.arrays:
            for task in range(array.part.count):
                log = submission / array.part.log(task)
                found[asked["jobs"][array.part.first + task]] = Task(f"{array.id}_{task}", array.id, when, log, record)
        if record.report is not None:
            found[REPORT] = Task(f"{record.report}_0", record.report, when, submission / REPORT_LOG, record)
    return found

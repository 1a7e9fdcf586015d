"""Overview: a batch's jobs as a person asks for them: state, progress, attempts, why one waits or ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.batch.batch import BATCH, REPORT, Batch
from marlnb.batch.executor import Known
from marlnb.batch.job.failures import command_again
from marlnb.batch.job.job import Job, JobStatus
from marlnb.errors import BatchError, MarlnbError
from marlnb.formatting import format_clock

ENDED_BADLY = ("failed", "interrupted")
DEEPEST = 3  # folders below which batches are looked for


@dataclass(frozen=True)
class Row:
    """One job.

    Attributes:
        state: as its files say; "queued" or "starting" where the executor knows more.
    """

    job: Job
    status: JobStatus
    state: str

    @property
    def progress(self) -> str:
        """`cell 4 of 20, training 120,000 of 3,000,000 frames, 40,000/s, 1:12 left`."""
        status = self.status
        if status.state == "complete" or not status.n_cells:
            return ""
        cell = f"cell {status.cell} of {status.n_cells}"
        return f"{cell}, {status.progress}" if status.progress else cell

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job.name,
            "parameters": dict(self.job.parameters),
            "folder": str(self.job.folder),
            **self.status.to_json(),
            "state": self.state,
            "again": command_again(self.job),
        }

    def cells(self) -> list[object]:
        """As `HEADER` says."""
        took = format_clock(self.status.seconds) if self.status.seconds else ""
        return [self.job.name, self.state, self.progress, self.status.attempt, took, self.status.reason]


HEADER = ("job", "state", "progress", "attempts", "time", "reason")


def rows(batch: Batch, known: Mapping[str, Known] | None = None) -> list[Row]:
    """One a job in the sweep's order, and one for the report where there is one."""
    heard = known or {}
    found = [
        Row(batch.job(name), status, _state(status, heard.get(name))) for name, status in batch.statuses(known).items()
    ]
    if batch.then is not None:
        report = batch.report_job()
        status = report.status()
        found.append(Row(report, status, _state(status, heard.get(REPORT))))
    return found


def ask(batch: Batch) -> tuple[Mapping[str, Known], str]:
    """What the executor knows, with one call of a scheduler at most; and why it could not be asked."""
    try:
        return batch.executor().known(batch), ""
    except MarlnbError as error:
        return {}, f"the {batch.profile.executor} executor could not be asked: {error}; this is what the files say"


def summary(found: Iterable[Row]) -> str:
    """`3 complete, 1 running, 16 queued`; the report is not counted."""
    counts = Counter(row.state for row in found if row.job.name != REPORT)
    order = ("complete", "running", "starting", "queued", "waiting", "interrupted", "stopped", "failed")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts[state])


def find_batches(folder: Path) -> list[Batch]:
    """Batches in a folder and below it, by name.

    Raises:
        BatchError: no such folder.
        RunError: one cannot be read.
    """
    if not folder.is_dir():
        raise BatchError(f"no folder {folder}: give a batch, or a folder that batches lie below")
    patterns = ["/".join(["*"] * depth + [BATCH]) for depth in range(1, DEEPEST + 1)]
    paths = sorted(path.parent for pattern in patterns for path in folder.glob(pattern))
    return [Batch.open(path) for path in paths]


def _state(status: JobStatus, known: Known | None) -> str:
    if known is not None and status.state in ("waiting", "interrupted"):
        return {"queued": "queued", "running": "starting"}.get(known.state, status.state)
    return status.state

"""Overview: the jobs of a batch with their state, progress, attempts and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.batch.batch import BATCH, REPORT, Batch
from marlnb.batch.executor import EXECUTORS
from marlnb.batch.job.failures import rerun_command
from marlnb.batch.job.job import Job, JobInfo, JobStatus
from marlnb.display.formatting import format_clock
from marlnb.errors import BatchError, MarlnbError

MAX_DEPTH = 3  # of subfolders that are searched for batches
HEADER = ("job", "state", "progress", "attempts", "time", "reason")


@dataclass(frozen=True)
class JobRow:
    """One job.

    Attributes:
        job: the job.
        status: its status.
        state: the status' state; "queued" or "starting" where the executor knows more.
    """

    job: Job
    status: JobStatus
    state: str

    @property
    def progress(self) -> str:
        """`JobStatus.position` while it runs."""
        return "" if self.status.state == "complete" or not self.status.n_cells else self.status.position

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job.name,
            "parameters": dict(self.job.parameters),
            "folder": str(self.job.folder),
            **self.status.to_json(),
            "state": self.state,
            "rerun_command": rerun_command(self.job),
        }

    def cells(self) -> list[object]:
        """The columns of `HEADER`."""
        seconds = format_clock(self.status.seconds) if self.status.seconds else ""
        return [self.job.name, self.state, self.progress, self.status.attempt, seconds, self.status.reason]


def job_rows(batch: Batch, infos: Mapping[str, JobInfo] | None = None) -> list[JobRow]:
    """One row per job in the sweep's order, and one for the report if the batch has one."""

    def row(job: Job, status: JobStatus) -> JobRow:
        info, state = (infos or {}).get(job.name), str(status.state)
        if info is not None and state in ("waiting", "interrupted"):
            state = {"queued": "queued", "running": "starting"}.get(info.state, state)
        return JobRow(job, status, state)

    rows = [row(batch.job(name), status) for name, status in batch.statuses(infos).items()]
    if batch.then is not None:
        rows.append(row(batch.report_job(), batch.report_job().status()))
    return rows


def query_executor(batch: Batch) -> tuple[Mapping[str, JobInfo], str]:
    """What the executor knows, with at most one call of a scheduler; and why it did not answer, if it did not."""
    infos, problem = query_executors([batch])
    return infos[0], problem


def query_executors(batches: Sequence[Batch]) -> tuple[list[Mapping[str, JobInfo]], str]:
    """As `query_executor`, for several batches of one executor, in their order."""
    if not batches:
        return [], ""
    name = batches[0].profile.executor
    try:
        answers = EXECUTORS.get(name).query_all(batches)
    except MarlnbError as error:
        problem = f"the {name} executor did not answer: {error}; the states are those of the files"
        return [{} for _ in batches], problem
    problems = [str(answer) for answer in answers if isinstance(answer, BatchError)]
    return [{} if isinstance(answer, BatchError) else answer for answer in answers], "; ".join(problems)


def summarize(rows: Iterable[JobRow]) -> str:
    """`3 complete, 1 running, 16 queued`; the report is not counted."""
    counts = Counter(row.state for row in rows if row.job.name != REPORT)
    order = ("complete", "running", "starting", "queued", "waiting", "interrupted", "stopped", "failed")
    return ", ".join(f"{counts[state]} {state}" for state in order if counts[state])


def summaries(folder: Path) -> tuple[dict[Path, tuple[Batch, str]], list[str]]:
    """By path, batches in a folder and its subfolders, each with its `summarize`; and why others cannot be read.

    Raises:
        BatchError: the folder does not exist.
    """
    read, problems = {}, []
    for path in find_batch_folders(folder):
        try:
            batch = Batch.open(path)
            read[path] = batch, summarize(job_rows(batch))
        except (MarlnbError, OSError) as error:
            problems.append(str(error))
    return read, problems


def find_batch_folders(folder: Path) -> list[Path]:
    """Folders of batches in a folder and its subfolders, by name; hidden folders are not searched.

    Raises:
        BatchError: the folder does not exist.
    """
    if not folder.is_dir():
        problem = f"{folder} is a file" if folder.exists() else f"the folder {folder} does not exist"
        raise BatchError(f"{problem}; give a batch's folder, or a folder that contains batches")
    patterns = ["/".join(["[!.]*"] * depth + [BATCH]) for depth in range(1, MAX_DEPTH + 1)]
    return sorted(path.parent for pattern in patterns for path in folder.glob(pattern))

"""Attempt: one try at executing a job, told while it goes on in the job's status, log and list of attempts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from marlnb.batch.job.failures import verdict
from marlnb.batch.job.job import ATTEMPTS, JOB_STATUS, CellError, Job, JobStatus, State
from marlnb.batch.job.progress import describe_progress
from marlnb.errors import RunError
from marlnb.training.runs.files import may_precede, read_json

STATUS_EVERY_S = 1.0
LOG_EVERY_S = 30.0
LONGEST_SHOWN = 160


class Attempt:
    """Begins with its `with`, ends with `end`; between them a thread tells about once a second how far it is.

    Attributes:
        number: counted from 1 over all attempts at this job.
        status: as told last.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._log = os.open(job.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _remove_left_overs(job.folder)
        before = _status_before(job)
        self.number = before.attempt + 1
        self._seconds_before = before.seconds
        self._began = time.time()
        self.status = JobStatus(
            "running", attempt=self.number, began=self._began, seconds=before.seconds, scheduler_id=scheduler_id()
        )
        self.looks: list[Callable[[], None]] = []  # what else is to be done each second
        self._title = self._shown = ""
        self._told_at = 0.0
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="marlnb-attempt", daemon=True)

    def __enter__(self) -> Attempt:
        where = f"process {os.getpid()} on {os.uname().nodename}"
        where += f", {self.status.scheduler_id}" if self.status.scheduler_id else ""
        self.say(f"attempt {self.number} at {self.job.name}: {where}")
        self.job.write_status(self.status)
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._ticker.join()
        if self.status.state == "running":  # nobody said how it ended
            self.end("failed", f"{type(error).__name__}: {error}" if error else "it ended without a word")
        os.close(self._log)

    def say(self, text: str) -> None:
        """A line with the time in the job's log."""
        self.print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def print(self, text: str) -> None:
        """Text in the job's log, in one write: threads and signals cannot tear it."""
        os.write(self._log, text.encode(errors="replace"))

    def begin_cell(self, number: int, n_cells: int, title: str, *, is_code: bool) -> None:
        """A cell is being executed; told in the log if it holds code."""
        self._title, self._shown, self._told_at = title, "", time.monotonic()
        self.status = replace(self.status, cell=number, n_cells=n_cells, progress="")
        if is_code:
            self.say(self._where())

    def show(self, text: str) -> None:
        """What a cell shows of its own progress: the newest line, for cells that do not train."""
        line = text.strip()
        self._shown = line if "\n" not in line and len(line) <= LONGEST_SHOWN else ""

    def end(self, state: State, reason: str = "", error: CellError | None = None) -> JobStatus:
        """Says how it ended; the thread has nothing more to tell."""
        self._ended.set()
        if self._ticker.is_alive() and threading.current_thread() is not self._ticker:
            self._ticker.join()
        now = time.time()
        self.status = replace(
            self.status,
            state=state,
            reason=reason,
            error=error,
            progress="",
            ended=now,
            seconds=self._seconds_before + now - self._began,
        )
        self.say(verdict(self.status))
        _append(self.job, self.status)
        self.job.write_status(self.status)
        return self.status

    def _where(self) -> str:
        title = f' "{self._title}"' if self._title else ""
        return f"cell {self.status.cell} of {self.status.n_cells}{title}"

    def _tick(self) -> None:
        while not self._ended.wait(STATUS_EVERY_S):
            try:
                for look in self.looks:
                    look()
                progress = describe_progress(self.job.folder) or self._shown
                seconds = self._seconds_before + time.time() - self._began
                now = replace(self.status, progress=progress, seconds=seconds)
                self.job.write_status(now)
                if time.monotonic() - self._told_at >= LOG_EVERY_S and now.cell:
                    self._told_at = time.monotonic()
                    self.say(self._where() + (f": {progress}" if progress else ""))
            except OSError:  # a full disk or a server that is away: the next time may be better
                continue


def scheduler_id() -> str:
    """What SLURM calls this job, as `17_3`; empty elsewhere."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def _status_before(job: Job) -> JobStatus:
    """What the attempt before said last. One that could not say that it ended is added to the list of attempts."""
    try:
        raw = JobStatus.from_json(read_json(job.folder / JOB_STATUS))
    except RunError:
        return JobStatus()
    if raw.state == "running":
        _append(job, replace(raw, state="interrupted", reason="it ended without a word", ended=raw.updated))
    return raw


def _remove_left_overs(folder: Path) -> None:
    """What writers that were killed left: nobody else writes while this process holds the job's lock."""
    for name in os.listdir(folder):
        if name.startswith(".") and may_precede(name):
            (folder / name).unlink(missing_ok=True)


def _append(job: Job, status: JobStatus) -> None:
    entry = {key: getattr(status, key) for key in ("attempt", "began", "ended", "state", "reason", "host")}
    entry["host"] = entry["host"] or os.uname().nodename
    with open(job.folder / ATTEMPTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")

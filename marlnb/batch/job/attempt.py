"""Attempt: one try at executing a job; writes the job's status, log and list of attempts while it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from marlnb.allocations import initial_end, scheduler_id
from marlnb.batch.job.failures import result_line
from marlnb.batch.job.job import CellError, Job, JobState, JobStatus
from marlnb.batch.job.training_progress import describe_training
from marlnb.errors import DiskError, RunError
from marlnb.training.runs.files import may_precede

STATUS_INTERVAL_S = 1.0
LOG_INTERVAL_S = 30.0
MAX_PROGRESS_LENGTH = 160


class Attempt:
    """Starts with its `with` and ends with `end`; in between a thread writes the status about once a second.

    Attributes:
        job: the job.
        number: of the attempt, counted from 1 over all attempts at this job.
        status: the newest status.
        callbacks: called each second, in the thread.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._log = os.open(job.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # temporary files of killed writers: this process holds the job's lock, so no other process writes here
        for name in os.listdir(job.folder):
            if name.startswith(".") and may_precede(name):
                (job.folder / name).unlink(missing_ok=True)
        previous = _previous_status(job)
        self.number = previous.attempt + 1
        self._seconds_before = previous.seconds
        self._clock_start = time.monotonic()
        self.status = JobStatus(
            "running",
            attempt=self.number,
            started=time.time(),
            ends=initial_end(),
            seconds=previous.seconds,
            scheduler_id=scheduler_id(),
        )
        self.callbacks: list[Callable[[], None]] = []
        self._title = self._cell_progress = ""
        self._logged_at = 0.0
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="marlnb-attempt", daemon=True)

    def __enter__(self) -> Attempt:
        process = f"process {os.getpid()} on {os.uname().nodename}"
        process += f", {self.status.scheduler_id}" if self.status.scheduler_id else ""
        self.say(f"attempt {self.number} at {self.job.name}: {process}")
        self.job.write_status(self.status)
        self._ticker.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._ended.set()
        self._ticker.join()
        if self.status.state == "running":  # `end` was not called
            self.end("failed", f"{type(error).__name__}: {error}" if error else "it ended without a message")
        os.close(self._log)

    def say(self, text: str) -> None:
        """Writes a line with the time to the job's log."""
        self.print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def print(self, text: str) -> None:
        """Writes text to the job's log, in one system call, so that threads and signals cannot interrupt it."""
        with suppress(OSError):  # a full disk: the job's status matters more
            os.write(self._log, text.encode(errors="replace"))

    def start_cell(self, number: int, n_cells: int, title: str, *, is_code: bool) -> None:
        """Notes the cell that starts now; code cells are written to the log."""
        self._title, self._cell_progress, self._logged_at = title, "", time.monotonic()
        self.status = replace(self.status, cell=number, n_cells=n_cells, progress="")
        if is_code:
            self.say(self._cell_text())

    def show(self, text: str) -> None:
        """Notes a cell's own progress text, which is shown if the cell does not train."""
        line = text.strip()
        self._cell_progress = line if "\n" not in line and len(line) <= MAX_PROGRESS_LENGTH else ""

    def end(self, state: JobState, reason: str = "", error: CellError | None = None) -> JobStatus:
        """Writes how the attempt ended, and ends the thread."""
        self._ended.set()
        if self._ticker.is_alive() and threading.current_thread() is not self._ticker:
            self._ticker.join()
        now = time.time()
        self.status = replace(
            self.status, state=state, reason=reason, error=error, progress="", ended=now, seconds=self._seconds()
        )
        self.say(result_line(self.status))
        with suppress(DiskError):
            self.job.add_attempt(self.status)
        try:
            self.job.write_status(self.status)
        except DiskError:  # what is short may fit into the space that the file has
            self.job.write_status(replace(self.status, error=error and replace(error, traceback="")))
        return self.status

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._clock_start

    def _cell_text(self) -> str:
        title = f' "{self._title}"' if self._title else ""
        return f"cell {self.status.cell} of {self.status.n_cells}{title}"

    def _tick(self) -> None:
        while not self._ended.wait(STATUS_INTERVAL_S):
            try:
                for callback in self.callbacks:
                    callback()
                progress = describe_training(self.job.folder) or self._cell_progress
                now = replace(self.status, progress=progress, seconds=self._seconds())
                self.job.write_status(now)
                if time.monotonic() - self._logged_at >= LOG_INTERVAL_S and now.cell:
                    self._logged_at = time.monotonic()
                    self.say(self._cell_text() + (f": {progress}" if progress else ""))
            except OSError:  # a full disk, or a file server that is away: try again next second
                continue


def _previous_status(job: Job) -> JobStatus:
    try:
        return job.add_killed_attempt()
    except RunError:  # the file is damaged
        return JobStatus()

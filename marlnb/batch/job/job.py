"""Job: one execution of a notebook, in a folder of files from which anyone can read its state."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from marlnb.disk import append_line, problem_of, state_of
from marlnb.errors import BatchError, RunError
from marlnb.paths import expanded
from marlnb.training.runs.files import JOB_LOCK as JOB_LOCK
from marlnb.training.runs.files import read_json, read_lines, remove_temporaries, write_atomically
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.records import checked_record, read_record

JOB = "job.json"
JOB_STATUS = "job_status.json"
ATTEMPTS = "attempts.jsonl"
LOG = "output.log"
LATE = (errno.ENOENT, errno.ESTALE, errno.EIO)  # of a file server, which may answer later

JobState = Literal["waiting", "running", "complete", "failed", "stopped", "interrupted"]
SchedulerState = Literal["queued", "running", "ended", "unknown"]


@dataclass(frozen=True)
class CellError:
    """Why a cell failed.

    Attributes:
        cell: number of the cell, counted from 1 over all cells.
        source: code of the cell.
        name: class name of the exception.
        message: text of the exception.
        traceback: end of the traceback, without colours.
    """

    cell: int
    source: str
    name: str
    message: str
    traceback: str


@dataclass(frozen=True)
class JobInfo:
    """What an executor knows about a job, in addition to the job's own files.

    Attributes:
        state: "queued" (it will start), "running", "ended" (it will not run again by itself) or "unknown" (the
            executor has never seen it).
        reason: why it waits or how it ended, in the executor's words (`NODE_FAIL`, `OUT_OF_MEMORY`, `exit code 1`). A
            reason that begins with `CANCELLED` means that a person ended it; such a job is not restarted.
        id: the executor's name for it, such as `17_3` or a process number.
        node: the machine on which it runs.
    """

    state: SchedulerState
    reason: str = ""
    id: str = ""
    node: str = ""

    @property
    def is_active(self) -> bool:
        return self.state in ("queued", "running")


UNKNOWN = JobInfo("unknown")


@dataclass(frozen=True)
class JobStatus:
    """Content of `job_status.json`, which is replaced atomically about once a second while the job runs.

    Attributes:
        state: "waiting" (not started, or between two attempts), "running", "complete", "failed" (a cell raised, or the
            notebook could not run), "stopped" (on request) or "interrupted" (by a signal, a time limit or a kill; it
            continues when it runs again).
        reason: what ended the last attempt: "SIGUSR1", "the kernel died", ...
        attempt: number of attempts so far.
        cell: number of the cell that runs, from 1.
        n_cells: number of cells.
        progress: progress of the training in that cell, as text; empty without a training run.
        started: start of the attempt, in seconds since 1970.
        updated: time of this status, in seconds since 1970.
        ends: when the scheduler's time limit ends the attempt, in seconds since 1970; 0.0 if that is not known.
        ended: end of the attempt, in seconds since 1970.
        seconds: time spent executing, summed over all attempts.
        pid: the process that executes it.
        host: the machine of that process.
        scheduler_id: the scheduler's name for it, such as `17_3`; empty without a scheduler.
        error: why a cell failed.
    """

    state: JobState = "waiting"
    reason: str = ""
    attempt: int = 0
    cell: int = 0
    n_cells: int = 0
    progress: str = ""
    started: float = 0.0
    updated: float = 0.0
    ends: float = 0.0
    ended: float = 0.0
    seconds: float = 0.0
    pid: int = 0
    host: str = ""
    scheduler_id: str = ""
    error: CellError | None = None

    @property
    def position(self) -> str:
        """`cell 4 of 20, training 120,000 of 3,000,000 frames, 40,000/s, 1:12 left`."""
        return f"cell {self.cell} of {self.n_cells}" + (f", {self.progress}" if self.progress else "")

    def has_ended_since(self, updated: float) -> bool:
        """Whether the job is complete, or has failed or was stopped since its status had this time, at a submission."""
        return self.state == "complete" or (self.state in ("failed", "stopped") and self.updated != updated)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any], where: str = JOB_STATUS) -> JobStatus:
        """Ignores fields that this version does not know: the status may come from a newer version.

        Raises:
            RunError: a value of another type; the message starts with `where`.
        """
        names = {field.name for field in fields(JobStatus)}
        values = {key: value for key, value in data.items() if key in names}
        status = checked_record(values, JobStatus, where)
        try:
            json.dumps(status.to_json(), allow_nan=False)  # the text "Infinity" is a number by then
        except (ValueError, RecursionError) as error:
            raise RunError(f"{where} is damaged: {error}") from error
        return status


@dataclass(frozen=True)
class _JobFile:
    """Content of `job.json`; the notebook relative to its folder."""

    notebook: str
    parameters: Mapping[str, Any]
    cwd: str
    environment: Mapping[str, str] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True)
class Job:
    """Content of `job.json`: a notebook and the values of its parameters.

    Attributes:
        folder: the job's folder; it also holds the run that the notebook makes.
        notebook: the notebook to execute, a copy that does not change.
        parameters: JSON values by name; `run`, the folder, is added at execution.
        cwd: the folder in which the notebook runs; its relative paths start there.
        environment: variables set for the kernel.
        replaces: whether `write` replaces other parameters, as the path in a report's when its batch was moved.
    """

    folder: Path
    notebook: Path
    parameters: Mapping[str, Any]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def is_executing(self) -> bool:
        """Whether a living process executes it now."""
        return is_locked(self.folder / JOB_LOCK)

    def write(self, *, sync: bool = True) -> None:
        """Creates the folder, readable by its owner alone, and `job.json`; a complete job is not changed.

        Args:
            sync: flush to disk, so that the file survives a power cut. Batches with many jobs skip it for speed.
        Raises:
            BatchError: the folder cannot be created, or it holds another job.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_temporaries(self.folder, [JOB])
        except OSError as error:
            problem = problem_of(error, self.folder)
            raise BatchError(f"the job's folder {self.folder} cannot be created: {problem}") from error
        notebook, parameters = os.path.relpath(self.notebook, self.folder), dict(self.parameters)
        data: dict[str, Any] = {"format": 1, "notebook": notebook, "parameters": parameters, "cwd": str(self.cwd)}
        data["environment"] = dict(self.environment)
        existing = self.check()
        is_same = existing is not None and _is_same_json(existing.get("parameters"), parameters)
        if existing == data or (is_same and self.status().state == "complete"):
            return
        write_atomically(self.folder / JOB, json.dumps(data, indent=2, allow_nan=False) + "\n", sync=sync)

    def check(self) -> dict[str, Any] | None:
        """The folder's `job.json`; None without one, or with a part of one after a power cut.

        Raises:
            BatchError: the folder holds another job.
        """
        try:
            existing = read_json(self.folder / JOB)
        except RunError:
            return None
        if not (self.replaces or _is_same_json(existing.get("parameters"), dict(self.parameters))):
            raise BatchError(
                f"{self.folder} already holds a job with other parameters, see {self.folder / JOB}; "
                "give another folder or delete this one"
            )
        return existing

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Job:
        """The job in a folder.

        Raises:
            BatchError: the folder holds no job.
        """
        path = expanded(folder).absolute()
        if not (path / JOB).is_file():
            raise BatchError(f"{path} is not a job: it has no {JOB}; jobs are in the folder jobs/ of a batch")
        data = read_record(path / JOB, _JobFile)
        notebook = Path(os.path.normpath(path / data.notebook))
        return Job(path, notebook, data.parameters, Path(data.cwd), data.environment)

    def status(self) -> JobStatus:
        """The status in the job's file; "interrupted" if the file says "running" and no process executes the job.

        A file that holds no status is a job that failed, with the damage as its reason: the other jobs of the batch
        are shown, and this one runs when it is submitted again.

        Raises:
            RunError: a file server does not answer, or not yet.
        """
        try:
            return self._current_status()
        except RunError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in LATE:
                raise
            return JobStatus("failed", str(error))

    def _current_status(self) -> JobStatus:
        status = self._read_status()
        if status.state == "running" and not self.is_executing:
            status = self._read_status()  # the process may have written its result and released the lock in between
            if status.state == "running":
                reason = "it ended without a message: killed, or its node was lost"
                if problem := state_of(self.folder):
                    reason = f"it ended without a message, and {problem}"
                return replace(status, state="interrupted", reason=reason)
        return status

    def _read_status(self) -> JobStatus:
        file = self.folder / JOB_STATUS
        return JobStatus.from_json(read_json(file), str(file)) if file.exists() else JobStatus()

    def write_status(self, status: JobStatus) -> None:
        """Replaces `job_status.json`, with the current process, host and time; on a full disk, in the space it has.

        If it was that of an attempt that was killed, the attempt is added to the list of attempts.
        """
        with suppress(RunError, OSError):  # a damaged file, a full disk
            if status.state != "running" and not self.is_executing:
                self.add_killed_attempt()
        now = replace(status, updated=time.time(), pid=os.getpid(), host=socket.gethostname())
        text = json.dumps(now.to_json()) + "\n"
        try:
            write_atomically(self.folder / JOB_STATUS, text, sync=False, in_place=True)
        except FileNotFoundError:  # a job that is cancelled before it was submitted has no folder
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.folder / JOB_STATUS, text, sync=False, in_place=True)

    def add_killed_attempt(self) -> JobStatus:
        """The status in the job's file. If it says "running", adds that attempt to the list of attempts.

        To be called by the process that executes the job now, or while none does.

        Raises:
            RunError: the status cannot be read.
            DiskError: the list cannot be written.
        """
        status = self._read_status()
        if status.state == "running":
            reason = "it ended without a message"
            self.add_attempt(replace(status, state="interrupted", reason=reason, ended=status.updated))
        return status

    def add_attempt(self, status: JobStatus) -> None:
        """Adds an attempt that has ended to `attempts.jsonl`. Raises DiskError: the disk refuses."""
        entry = {key: getattr(status, key) for key in ("attempt", "started", "ended", "state", "reason", "host")}
        entry["host"] = entry["host"] or socket.gethostname()
        append_line(self.folder / ATTEMPTS, json.dumps(entry))

    def attempts(self) -> list[dict[str, Any]]:
        """One entry for each attempt that has ended: attempt, started, ended, state, reason, host."""
        return read_lines(self.folder / ATTEMPTS)


def _is_same_json(first: Any, second: Any) -> bool:
    """Whether two values have the same JSON, as 1, 1.0 and true do not; Python's == calls them equal."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)

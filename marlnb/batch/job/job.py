"""Job: one execution of a notebook, in a folder that tells everything about it to whoever can read files."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from marlnb.errors import BatchError, RunError
from marlnb.training.runs.files import read_json, read_lines, write_atomically
from marlnb.training.runs.lock import is_locked

JOB = "job.json"
JOB_STATUS = "job_status.json"
JOB_LOCK = "job.lock"
ATTEMPTS = "attempts.jsonl"
LOG = "output.log"

State = Literal["waiting", "running", "complete", "failed", "stopped", "interrupted"]


@dataclass(frozen=True)
class CellError:
    """Why a cell failed.

    Attributes:
        cell: the number of the cell, counted from 1 as `n_cells` counts them.
        source: its code.
        name: the exception's class. message: what it said. traceback: the end of its traceback, without colours.
    """

    cell: int
    source: str
    name: str
    message: str
    traceback: str


@dataclass(frozen=True)
class JobStatus:
    """What `job_status.json` says; replaced atomically about once a second while the job runs.

    Attributes:
        state: waiting (never begun, or between two attempts); running; complete; failed (a cell raised, or the
            notebook could not be run); stopped (somebody asked for it); interrupted (a signal, a time limit or a
            kill: it goes on when it is run again).
        reason: in words, what ended the last attempt: "SIGUSR1", "the kernel died", ...
        attempt: how often it was begun.
        cell, n_cells: the cell being executed, from 1, and how many there are.
        progress: how far the training in that cell is, as text; empty where none is going on.
        began, updated, ended: seconds since 1970.
        seconds: executing, all attempts together.
        scheduler_id: what the scheduler calls it, as `17_3`; empty where there is none.
    """

    state: State = "waiting"
    reason: str = ""
    attempt: int = 0
    cell: int = 0
    n_cells: int = 0
    progress: str = ""
    began: float = 0.0
    updated: float = 0.0
    ended: float = 0.0
    seconds: float = 0.0
    pid: int = 0
    host: str = ""
    scheduler_id: str = ""
    error: CellError | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> JobStatus:
        """Fields that this version does not know are left out: a status may be of a newer one."""
        known = {field.name for field in fields(JobStatus)}
        values = {key: value for key, value in data.items() if key in known}
        if values.get("error") is not None:
            values["error"] = CellError(**values["error"])
        return JobStatus(**values)


@dataclass(frozen=True)
class Job:
    """What `job.json` holds: a notebook and the values of its parameters.

    Attributes:
        folder: the job's own; the run that the notebook makes lies in it too.
        notebook: the notebook to execute, a copy that nobody edits.
        parameters: plain JSON by name; `run`, which is the folder, is added when it is executed.
        cwd: the folder in which it is executed: relative paths in the notebook are meant from there.
        environment: variables set for its kernel.
    """

    folder: Path
    notebook: Path
    parameters: Mapping[str, Any]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def is_held(self) -> bool:
        """Whether a living process executes it now."""
        return is_locked(self.folder / JOB_LOCK)

    def write(self, *, sync: bool = True) -> None:
        """Makes the folder, readable by its owner alone, and `job.json` in it; a complete job stays as it is.

        Args:
            sync: whether the file outlives a power cut from now on; a batch of many jobs does without.
        Raises:
            BatchError: it cannot be made, or holds another job.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BatchError(f"{self.folder} cannot be made: {error.strerror or error}") from error
        data = {
            "format": 1,
            "notebook": os.path.relpath(self.notebook, self.folder),
            "parameters": dict(self.parameters),
            "cwd": str(self.cwd),
            "environment": dict(self.environment),
        }
        there = self._written()
        if there == data or (there is not None and self.status().state == "complete"):
            return
        write_atomically(self.folder / JOB, json.dumps(data, indent=2, allow_nan=False) + "\n", sync=sync)

    def _written(self) -> dict[str, Any] | None:
        """What `job.json` holds already; None where there is none, or a power cut left a part of it."""
        try:
            there = read_json(self.folder / JOB)
        except RunError:
            return None
        if there.get("parameters") != dict(self.parameters):
            raise BatchError(f"{self.folder} holds another job already: see {self.folder / JOB}")
        return there

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Job:
        """Raises BatchError when the folder holds no job."""
        path = Path(folder).expanduser().absolute()
        if not (path / JOB).is_file():
            raise BatchError(f"{path} is no job: it has no {JOB}")
        data = read_json(path / JOB)
        notebook = Path(os.path.normpath(path / data["notebook"]))
        return Job(path, notebook, data["parameters"], Path(data["cwd"]), data["environment"])

    def status(self) -> JobStatus:
        """What its file says; interrupted where it says running and nobody executes it."""
        status = self._told()
        if status.state == "running" and not self.is_held:
            status = self._told()  # it may have said so since, and then let go
            if status.state == "running":
                why = "it ended without a word: killed, or its node was lost"
                return replace(status, state="interrupted", reason=why)
        return status

    def _told(self) -> JobStatus:
        file = self.folder / JOB_STATUS
        return JobStatus.from_json(read_json(file)) if file.exists() else JobStatus()

    def write_status(self, status: JobStatus) -> None:
        """Replaces `job_status.json`; process, host and time are added."""
        now = replace(status, updated=time.time(), pid=os.getpid(), host=socket.gethostname())
        write_atomically(self.folder / JOB_STATUS, json.dumps(now.to_json()) + "\n", sync=False)

    def attempts(self) -> list[dict[str, Any]]:
        """One entry an attempt that ended and could say so: attempt, began, ended, state, reason, host."""
        return read_lines(self.folder / ATTEMPTS)

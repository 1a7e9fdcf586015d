"""The files between a supervisor and its executor, in the folder of the submission: states of jobs, and requests."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.batch.job.job import SchedulerState
from marlnb.errors import RunError
from marlnb.training.runs.files import is_damage, read_json, write_atomically
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.records import checked_record

ENTRIES = "supervisor.json"
LOCK = "supervisor.lock"
LOG = "supervisor.log"
CANCEL = "cancel"  # a folder with an empty file for each job to end, named like the job


@dataclass
class JobEntry:
    """A job, as its supervisor sees it.

    Attributes:
        state: "queued", "running" or "ended".
        reason: why it waits, or how it ended.
        pid: its process; 0 without one.
        restarts: how often this supervisor restarted it after it was killed.
    """

    state: SchedulerState = "queued"
    reason: str = ""
    pid: int = 0
    restarts: int = 0


def write_entries(folder: Path, entries: Mapping[str, JobEntry]) -> None:
    text = json.dumps({name: asdict(entry) for name, entry in entries.items()}, indent=1)
    write_atomically(folder / ENTRIES, text + "\n", sync=False)


def read_entries(folder: Path) -> dict[str, JobEntry]:
    """The newest entries of a submission's supervisor by job name.

    Empty if it has written none, is not local, or its file is damaged: jobs without a supervisor then count as ended.

    Raises:
        RunError: the file cannot be read.
    """
    if not (folder / ENTRIES).exists():
        return {}
    where = f"{folder / ENTRIES}"
    try:
        entries = read_json(folder / ENTRIES)
        return {name: checked_record(entry, JobEntry, f"{where}: {name}") for name, entry in entries.items()}
    except RunError as error:
        if not is_damage(error):
            raise
        return {}


def is_local(folder: Path) -> bool:
    """Whether the local executor made the submission."""
    return (folder / LOCK).exists()


def has_supervisor(folder: Path) -> bool:
    """Whether a living supervisor runs the submission."""
    return is_locked(folder / LOCK)


def request_cancel(folder: Path, name: str) -> None:
    (folder / CANCEL).mkdir(mode=0o700, exist_ok=True)
    (folder / CANCEL / name).touch()


def requested_cancels(folder: Path) -> set[str]:
    """Names of the jobs that should end."""
    try:
        return set(os.listdir(folder / CANCEL))
    except FileNotFoundError:
        return set()

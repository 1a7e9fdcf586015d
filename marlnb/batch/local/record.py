"""Record: what a supervisor tells of its jobs, and what it is asked, as files in the folder of the submission."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from marlnb.batch.executor import Whereabouts
from marlnb.training.runs.files import read_json, write_atomically
from marlnb.training.runs.lock import is_locked

TOLD = "supervisor.json"
LOCK = "supervisor.lock"
LOG = "supervisor.log"
CANCEL = "cancel"  # a folder: an empty file a job that is to end, named as the job


@dataclass
class Entry:
    """A job as its supervisor sees it.

    Attributes:
        state: queued, running or ended.
        reason: why it waits, or how it ended.
        pid: its process, 0 before the first.
        begun_again: how often this supervisor began it again because it had been killed.
    """

    state: Whereabouts = "queued"
    reason: str = ""
    pid: int = 0
    begun_again: int = 0


def write_entries(folder: Path, entries: Mapping[str, Entry]) -> None:
    text = json.dumps({name: asdict(entry) for name, entry in entries.items()}, indent=1)
    write_atomically(folder / TOLD, text + "\n", sync=False)


def read_entries(folder: Path) -> dict[str, Entry]:
    """What the supervisor of a submission wrote last; nothing where it has not begun, or is no local one."""
    if not (folder / TOLD).exists():
        return {}
    return {name: Entry(**entry) for name, entry in read_json(folder / TOLD).items()}


def is_local(folder: Path) -> bool:
    """Whether the submission is one of the local executor."""
    return (folder / LOCK).exists()


def is_supervised(folder: Path) -> bool:
    """Whether a living supervisor works on the submission."""
    return is_locked(folder / LOCK)


def ask_to_cancel(folder: Path, name: str) -> None:
    (folder / CANCEL).mkdir(mode=0o700, exist_ok=True)
    (folder / CANCEL / name).touch()


def cancelled(folder: Path) -> set[str]:
    """Names of the jobs that are to end."""
    try:
        return set(os.listdir(folder / CANCEL))
    except FileNotFoundError:
        return set()

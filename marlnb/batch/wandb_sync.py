"""Weights & Biases: what trainings wrote offline, found below run and batch folders, uploaded where there is internet.

The attempts of a run have one id, and wandb uploads the files of one id in the order of their beginnings: they become
one run there. wandb marks what it has uploaded by a file `*.wandb.synced`; so a second call uploads only what is new.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from marlnb.batch.job.job import JOB_LOCK
from marlnb.errors import BatchError
from marlnb.training.runs.lock import is_locked

_OFFLINE = re.compile(r"offline-run-(\d{8}_\d{6})-(.+)")
_NOT_ENTERED = ("checkpoints", "recordings", "node_modules")
_AT_ONCE = 200  # paths of one command line, and so of one call of wandb


@dataclass(frozen=True)
class OfflineRun:
    """One attempt of a run, as wandb wrote it.

    Attributes:
        folder: `<run>/wandb/offline-run-<began>-<id>`.
        id: by what Weights & Biases knows the run; attempts of one run share it.
        began: when, as in the folder's name, so that names in order are attempts in order.
    """

    folder: Path
    id: str
    began: str

    @property
    def run(self) -> Path:
        """The folder of the run that was trained."""
        return self.folder.parent.parent

    @property
    def is_synced(self) -> bool:
        return any(self.folder.glob("*.wandb.synced"))

    @property
    def is_busy(self) -> bool:
        """Whether a training may still write to it."""
        return any(is_locked(self.run / name) for name in ("lock", JOB_LOCK))


def find_offline_runs(paths: Sequence[str | os.PathLike[str]]) -> list[OfflineRun]:
    """Every offline run at or below some folders, the attempts of a run together and in their order.

    Raises:
        BatchError: a folder is not there.
    """
    found: dict[Path, OfflineRun] = {}
    for path in paths:
        top = Path(path).expanduser().absolute()
        if not top.is_dir():
            raise BatchError(f"no folder {top}; give a run, a batch, or a folder of them")
        for folder in _wandb_folders(top):
            for entry in folder.iterdir():
                match = _OFFLINE.fullmatch(entry.name)
                if match and any(entry.glob("*.wandb")):
                    found[entry.resolve()] = OfflineRun(entry, match[2], match[1])
    return sorted(found.values(), key=lambda run: (str(run.run), run.id, run.began))


def upload(runs: Sequence[OfflineRun]) -> list[OfflineRun]:
    """Uploads by `wandb sync`, which shows its progress, and returns what was not uploaded whole.

    Raises:
        BatchError: wandb is not installed, or refused all of it (as without a login); its own words are in the message.
    """
    if importlib.util.find_spec("wandb") is None:
        raise BatchError("wandb is not installed in this environment: pip install 'marlnb[wandb]'")
    for part in _parts(runs):
        command = [sys.executable, "-m", "wandb", "sync", *(str(run.folder) for run in part)]
        code, said = _run_shown(command, logs=part[0].folder.parent)
        if code:
            hint = "; `wandb login` keeps a key" if "API key" in said else ""
            raise BatchError(f"wandb sync ended with {code}: {_last_line(said)}{hint}")
    return [run for run in runs if not run.is_synced]


def _wandb_folders(top: Path) -> Iterator[Path]:
    for parent, folders, _ in os.walk(top):
        if Path(parent).name == "wandb":
            folders.clear()
            yield Path(parent)
        folders[:] = [name for name in folders if name not in _NOT_ENTERED and not name.startswith(".")]


def _parts(runs: Sequence[OfflineRun]) -> Iterator[list[OfflineRun]]:
    """Parts of at most `_AT_ONCE` attempts, those of one run never apart: wandb orders only what it gets at once."""
    part: list[OfflineRun] = []
    for run in runs:
        if len(part) >= _AT_ONCE and run.id != part[-1].id:
            yield part
            part = []
        part.append(run)
    if part:
        yield part


def _run_shown(command: Sequence[str], *, logs: Path) -> tuple[int, str]:
    """Runs a command, its words shown on stderr as they come, and returns its exit code and its words.

    Args:
        logs: a folder `wandb`, which gets wandb's own logs; else one would be made where the user happens to be.
    """
    said = []
    variables = {**_online(), "WANDB_DIR": str(logs.parent)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        for line in child.stdout or ():
            sys.stderr.write(line)
            said.append(line)
    return child.returncode, "".join(said)


def _online() -> dict[str, str]:
    """This process's variables without those that would keep wandb from uploading."""
    return {name: value for name, value in os.environ.items() if name not in ("WANDB_MODE", "WANDB_DISABLED")}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"

"""Upload Weights & Biases runs that training runs wrote offline, found in run and batch folders.

The attempts of a run share one id, and wandb uploads the files of one id in order of their start: they become one run
there. wandb marks uploaded files by `*.wandb.synced`, so a second call uploads only what is new.
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
from marlnb.paths import expanded
from marlnb.training.runs.lock import is_locked

_OFFLINE = re.compile(r"offline-run-(\d{8}_\d{6})-(.+)")
_ATTEMPT = re.compile(r"(offline-)?run-\d{8}_\d{6}-.+")
_SKIPPED_FOLDERS = ("checkpoints", "recordings", "node_modules")
_MAX_PATHS = 200  # of one call of wandb, whose command line has a limited length


@dataclass(frozen=True)
class OfflineRun:
    """One attempt of a run, as wandb wrote it.

    Attributes:
        folder: `<run>/wandb/offline-run-<started>-<id>`.
        id: the run's id at Weights & Biases; attempts of one run share it.
        started: time as in the folder's name; sorted names are sorted attempts.
    """

    folder: Path
    id: str
    started: str

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder.parent.parent

    @property
    def is_synced(self) -> bool:
        return any(self.folder.glob("*.wandb.synced"))

    @property
    def is_busy(self) -> bool:
        """Whether a training run may still write to it."""
        return any(is_locked(self.run / name) for name in ("lock", JOB_LOCK))


def find_offline_runs(paths: Sequence[str | os.PathLike[str]]) -> list[OfflineRun]:
    """Every offline run in some folders and their subfolders; the attempts of a run are together and in order.

    Raises:
        BatchError: a folder does not exist, or is a file.
    """
    runs: dict[Path, OfflineRun] = {}
    for path in paths:
        top = expanded(path).absolute()
        if not top.is_dir():
            problem = f"{top} is a file" if top.exists() else f"the folder {top} does not exist"
            raise BatchError(f"{problem}; give the folder of a run or of a batch, or one that contains them")
        for folder in _wandb_folders(top):
            for entry in folder.iterdir():
                if (match := _OFFLINE.fullmatch(entry.name)) and any(entry.glob("*.wandb")):
                    runs[entry.resolve()] = OfflineRun(entry, match[2], match[1])
    return sorted(runs.values(), key=lambda run: (str(run.run), run.id, run.started))


def upload(runs: Sequence[OfflineRun]) -> list[OfflineRun]:
    """Uploads with `wandb sync`, which shows its progress; returns the runs that were not uploaded completely.

    Raises:
        BatchError: wandb is not installed, or failed (e.g. without a login); the message contains its own words.
    """
    if importlib.util.find_spec("wandb") is None:
        raise BatchError("wandb is not installed in this environment; install it with: pip install 'marlnb[wandb]'")
    for part in _parts(runs):
        command = [sys.executable, "-m", "wandb", "sync", *(str(run.folder) for run in part)]
        code, output = _run_visibly(command, logs=part[0].folder.parent)
        if code:
            hint = "; log in with `wandb login`" if "API key" in output else ""
            last = next(filter(None, map(str.strip, reversed(output.splitlines()))), "no output")
            raise BatchError(f"wandb sync failed with exit code {code}: {last}{hint}")
    return [run for run in runs if not run.is_synced]


def _wandb_folders(top: Path) -> Iterator[Path]:
    for parent, folders, _ in os.walk(top):
        if Path(parent).name == "wandb":
            folders[:] = [name for name in folders if not _ATTEMPT.fullmatch(name)]
            yield Path(parent)
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]


def _parts(runs: Sequence[OfflineRun]) -> Iterator[list[OfflineRun]]:
    """Parts of at most about `_MAX_PATHS` attempts. A run is never split: wandb orders only what one call uploads."""
    part: list[OfflineRun] = []
    for run in runs:
        if len(part) >= _MAX_PATHS and run.id != part[-1].id:
            yield part
            part = []
        part.append(run)
    if part:
        yield part


def _run_visibly(command: Sequence[str], *, logs: Path) -> tuple[int, str]:
    """Runs a command and shows its output on stderr; returns the exit code and the output.

    Args:
        logs: the folder `wandb` for wandb's own logs, which it would otherwise create in the working folder.
    """
    lines = []
    blocking = ("WANDB_MODE", "WANDB_DISABLED")  # would keep wandb from uploading
    variables = {name: value for name, value in os.environ.items() if name not in blocking}
    variables["WANDB_DIR"] = str(logs.parent)
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        for line in child.stdout or ():
            sys.stderr.write(line)
            lines.append(line)
    return child.returncode, "".join(lines)

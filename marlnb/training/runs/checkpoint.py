"""Checkpoints: folders named by iteration, written under another name and renamed, so that each one is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.errors import CheckpointError
from marlnb.training.runs.state_file import read_manifest, read_state, sync_folder, write_state

TEMPORARY = ".writing-"
REPLACED = ".replaced-"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk.

    Attributes:
        path: its folder.
        iteration: iterations of training until then.
        frames: frames until then.
        score: mean return per agent averaged over the groups at that time; None before any episode ended.
        sha256: hash of the content.
        at_stop: whether it exists only because a batch job was stopped here; the next one replaces it.
    """

    path: Path
    iteration: int
    frames: int
    score: float | None
    sha256: str
    at_stop: bool = False

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Checkpoint:
        """Reads the manifest only.

        Raises:
            CheckpointError: it is missing or damaged.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        try:
            score = manifest["score"]
            return Checkpoint(
                path=folder,
                iteration=int(manifest["iteration"]),
                frames=int(manifest["frames"]),
                score=None if score is None else float(score),
                sha256=str(manifest["sha256"]),
                at_stop=bool(manifest.get("at_stop", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{folder} is not a training checkpoint: {error}") from error

    def load(self) -> dict[str, Any]:
        """The whole state, tensors on the CPU, every hash verified.

        Raises:
            CheckpointError: a file is missing, damaged or malformed.
        """
        return read_state(self.path)


def save_checkpoint(
    folder: Path, state: Mapping[str, Any], *, iteration: int, frames: int, score: float | None, at_stop: bool = False
) -> Checkpoint:
    """Writes `<folder>/<iteration>` atomically. A full disk or a kill leaves earlier checkpoints complete.

    Raises:
        CheckpointError: it cannot be written; the message lists the remaining checkpoints.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_leftovers(folder)
    temporary = folder / f"{TEMPORARY}{iteration}"
    target = folder / str(iteration)
    header = {"iteration": iteration, "frames": frames, "score": score, **({"at_stop": True} if at_stop else {})}
    try:
        temporary.mkdir(mode=0o700)
        sha256 = write_state(temporary, state, header)
        if target.exists():
            target.rename(folder / f"{REPLACED}{iteration}")
        temporary.rename(target)
        sync_folder(folder)
    except OSError as error:
        remaining = ", ".join(str(number) for number in _iterations(folder)) or "none"
        raise CheckpointError(
            f"checkpoint {iteration} cannot be written to {folder}: {error.strerror or error}; "
            f"complete checkpoints there: {remaining}"
        ) from error
    finally:
        remove_leftovers(folder)
    return Checkpoint(target, iteration, frames, score, sha256, at_stop)


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Those that can be opened, oldest first. A damaged one is skipped; `Checkpoint.open` says why."""
    checkpoints = []
    for iteration in _iterations(folder):
        with suppress(CheckpointError):
            checkpoints.append(Checkpoint.open(folder / str(iteration)))
    return checkpoints


def drop_stop_checkpoints(folder: Path, before: int) -> None:
    """Deletes checkpoints before this iteration that exist only because a training was stopped."""
    for checkpoint in list_checkpoints(folder):
        if checkpoint.iteration < before and checkpoint.at_stop:
            shutil.rmtree(checkpoint.path)


def rotate_checkpoints(folder: Path, keep: int) -> None:
    """Deletes all but the latest `keep` and the best; `keep` 0 deletes none."""
    checkpoints = list_checkpoints(folder)
    if keep == 0 or len(checkpoints) <= keep:
        return
    best = best_checkpoint(checkpoints)
    for checkpoint in checkpoints[:-keep]:
        if checkpoint != best:
            shutil.rmtree(checkpoint.path)


def best_checkpoint(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The one with the highest score, the latest among equals; None if none has a score."""
    scored = [(item.score, item.iteration, item) for item in checkpoints if item.score is not None]
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


def remove_leftovers(folder: Path) -> None:
    """Deletes what a killed writer left. A checkpoint that was being replaced is restored if it has no successor."""
    for path in folder.glob(f"{REPLACED}*"):
        target = folder / path.name.removeprefix(REPLACED)
        if target.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.rename(target)
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _iterations(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit() and path.is_dir())

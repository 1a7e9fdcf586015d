"""Checkpoints: folders named by iteration, written aside and renamed, so that each one is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
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
        iteration: iterations of training that it holds.
        frames: frames collected until then.
        score: mean return per agent averaged over the groups as known then, None before any episode ended.
        sha256: the hash of its whole content.
        at_stop: whether it is there only because a batch job was stopped here, and gives way to the next one.
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
            raise CheckpointError(f"{folder} is no training checkpoint: {error}") from error

    def load(self) -> dict[str, Any]:
        """The whole state, tensors on the CPU, every hash verified.

        Raises:
            CheckpointError: a file is missing, damaged or malformed.
        """
        return read_state(self.path)


def save_checkpoint(
    folder: Path,
    state: Mapping[str, Any],
    *,
    iteration: int,
    frames: int,
    score: float | None,
    at_stop: bool = False,
) -> Checkpoint:
    """Writes `<folder>/<iteration>` atomically; a full disk or a kill leaves the earlier ones whole.

    Raises:
        CheckpointError: it cannot be written, with what remains.
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
        kept = ", ".join(str(number) for number in _iterations(folder)) or "none"
        raise CheckpointError(
            f"checkpoint {iteration} cannot be written to {folder}: {error.strerror or error}; "
            f"whole checkpoints there: {kept}"
        ) from error
    finally:
        remove_leftovers(folder)
    return Checkpoint(target, iteration, frames, score, sha256, at_stop)


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Those that can be opened, oldest first. A damaged one is left out; opening it by its path says why."""
    found = []
    for iteration in _iterations(folder):
        try:
            found.append(Checkpoint.open(folder / str(iteration)))
        except CheckpointError:
            continue
    return found


def drop_stop_checkpoints(folder: Path, before: int) -> None:
    """Removes those made because a training was stopped, of iterations before this one; others were asked for."""
    for checkpoint in list_checkpoints(folder):
        if checkpoint.iteration < before and checkpoint.at_stop:
            shutil.rmtree(checkpoint.path)


def rotate_checkpoints(folder: Path, keep: int) -> None:
    """Removes all but the newest `keep` and the best; `keep` 0 removes none."""
    found = list_checkpoints(folder)
    if keep == 0 or len(found) <= keep:
        return
    best = best_checkpoint(found)
    for checkpoint in found[:-keep]:
        if checkpoint != best:
            shutil.rmtree(checkpoint.path)


def best_checkpoint(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The one of highest score, the newest of equals; None where none has a score."""
    scored = [
        (checkpoint.score, checkpoint.iteration, checkpoint)
        for checkpoint in checkpoints
        if checkpoint.score is not None
    ]
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


def remove_leftovers(folder: Path) -> None:
    """Removes what a killed writer left; a checkpoint being replaced comes back unless its successor is there."""
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

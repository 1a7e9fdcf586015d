"""Checkpoints: folders named by iteration, written under another name and renamed, so that each one is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.disk import problem_of
from marlnb.display.formatting import format_number, short_path
from marlnb.errors import CheckpointError, CheckpointWriteError
from marlnb.training.runs.checkpoints.manifest import read_manifest
from marlnb.training.runs.files import METRICS, numbered, read_lines
from marlnb.training.shared_return import earn_differently, shared_return

TEMPORARY = ".writing-"
REPLACED = ".replaced-"
DAMAGED = "damaged-"
ALL_GROUPS = "all groups"  # in checkpoints of earlier versions, which hold one number


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """One checkpoint on disk.

    Attributes:
        path: its folder.
        iteration: iterations of training until then.
        frames: frames until then.
        returns: by group, the mean return of one agent: of its own evaluation where the training evaluates, empty if
            it was not evaluated; else of the latest episodes, empty before any ended.
        sha256: hash of the content.
        at_stop: whether it exists only because a batch job was stopped here; the next one replaces it.
    """

    path: Path
    iteration: int
    frames: int
    returns: Mapping[str, float] = field(hash=False)
    sha256: str
    at_stop: bool = False

    @property
    def score(self) -> float | None:
        """The return that all groups share; None if `returns` is empty, and where they are rewarded differently."""
        return shared_return(self.returns)

    def __repr__(self) -> str:
        returns = ", ".join(f"{name} {format_number(value)}" for name, value in self.returns.items())
        mean = f", mean return {returns}" if returns else ""
        return f"<Checkpoint {self.iteration} in {short_path(self.path.parent)}: {self.frames:,} frames{mean}>"

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
            returns = manifest["returns"] if "returns" in manifest else _earlier_returns(folder, score)
            return Checkpoint(
                path=folder,
                iteration=int(manifest["iteration"]),
                frames=int(manifest["frames"]),
                returns={str(name): float(value) for name, value in returns.items()},
                sha256=str(manifest["sha256"]),
                at_stop=bool(manifest.get("at_stop", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"{folder} is not a checkpoint of a training run: {error}") from error

    def load(self) -> dict[str, Any]:
        """The whole state, tensors on the CPU, every hash verified.

        Raises:
            CheckpointError: a file is missing, damaged or malformed.
        """
        from marlnb.training.runs.checkpoints.state_file import read_state  # imports torch

        return read_state(self.path)


def _earlier_returns(folder: Path, score: float | None) -> dict[str, float]:
    """The returns of a checkpoint of an earlier version, which holds one number, the mean over the groups.

    Where groups are rewarded differently, they are those of its iteration in the run's metrics.
    """
    rows = read_lines(folder.parent.parent / METRICS)
    of_iteration = next((row for row in rows if str(row.get("iteration")) == folder.name), {})
    returns = of_iteration.get("evaluation") or of_iteration.get("returns") or {}
    if earn_differently(returns):
        return {name: value for name, value in returns.items() if value is not None}
    return {} if score is None else {ALL_GROUPS: score}


def save_checkpoint(
    folder: Path,
    state: Mapping[str, Any],
    *,
    iteration: int,
    frames: int,
    returns: Mapping[str, float],
    at_stop: bool = False,
) -> Checkpoint:
    """Writes `<folder>/<iteration>` atomically. A full disk or a kill leaves earlier checkpoints complete.

    Raises:
        CheckpointWriteError: it cannot be written; the message lists the remaining checkpoints.
    """
    from marlnb.training.runs.checkpoints.state_file import sync_folder, write_state  # imports torch

    temporary = folder / f"{TEMPORARY}{iteration}"
    target = folder / str(iteration)
    scores = {"score": shared_return(returns), "returns": dict(returns)}
    header = {"iteration": iteration, "frames": frames, **scores, **({"at_stop": True} if at_stop else {})}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_leftovers(folder)
        temporary.mkdir(mode=0o700)
        sha256 = write_state(temporary, state, header)
        if target.exists():
            target.rename(folder / f"{REPLACED}{iteration}")
        temporary.rename(target)
        sync_folder(folder)
    except OSError as error:
        remaining = ", ".join(path.name for path in checkpoint_folders(folder)) or "none"
        problem = problem_of(error, folder)
        raise CheckpointWriteError(
            f"checkpoint {iteration} cannot be written to {folder}: {problem}; complete checkpoints there: {remaining}"
        ) from error
    finally:
        with suppress(OSError):  # the next checkpoint, or the next training run, tries again
            remove_leftovers(folder)
    return Checkpoint(target, iteration, frames, dict(returns), sha256, at_stop)


def checkpoint_folders(folder: Path) -> list[Path]:
    """The folders of all checkpoints, damaged ones too, oldest first."""
    return [path for number in numbered(folder) if (path := folder / str(number)).is_dir()]


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Those that can be opened, oldest first. A damaged one is skipped; `damaged_checkpoints` says why."""
    checkpoints = []
    for path in checkpoint_folders(folder):
        with suppress(CheckpointError):
            checkpoints.append(Checkpoint.open(path))
    return checkpoints


def damaged_checkpoints(folder: Path, after: int = -1) -> dict[int, str]:
    """By iteration, of those after `after`, why a checkpoint cannot be opened."""
    reasons = {}
    for path in checkpoint_folders(folder):
        if int(path.name) <= after:
            continue
        try:
            Checkpoint.open(path)
        except CheckpointError as error:
            if path.is_dir():  # it has not just been deleted by a training run
                reasons[int(path.name)] = str(error)
    return reasons


def set_aside(path: Path) -> Path:
    """Renames the folder of a damaged checkpoint, which is then none of the run's. Returns where it is now."""
    target = path.with_name(f"{DAMAGED}{path.name}")
    shutil.rmtree(target, ignore_errors=True)  # an earlier one of this iteration
    return path.rename(target)


def drop_stop_checkpoints(folder: Path, before: int) -> None:
    """Deletes checkpoints before this iteration that exist only because a training run was stopped."""
    for checkpoint in list_checkpoints(folder):
        if checkpoint.iteration < before and checkpoint.at_stop:
            _delete(checkpoint)


def rotate_checkpoints(folder: Path, keep: int) -> None:
    """Deletes all but the latest `keep` and the best, of each group where they are rewarded differently; 0: none."""
    checkpoints = list_checkpoints(folder)
    if keep == 0 or len(checkpoints) <= keep:
        return
    best = [best_checkpoint(checkpoints, group) for group in competing_groups(checkpoints) or (None,)]
    for checkpoint in checkpoints[:-keep]:
        if checkpoint not in best:
            _delete(checkpoint)


def _delete(checkpoint: Checkpoint) -> None:
    """Deletes a checkpoint at once: a reader never sees a part of it."""
    hidden = checkpoint.path.with_name(f"{TEMPORARY}deleted-{checkpoint.iteration}")
    checkpoint.path.rename(hidden)
    shutil.rmtree(hidden)


def competing_groups(checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    """The groups of agents, where they are rewarded differently, so that no checkpoint is best for all; else none."""
    different = [checkpoint for checkpoint in checkpoints if earn_differently(checkpoint.returns)]
    return tuple(different[-1].returns) if different else ()


def best_checkpoint(checkpoints: Sequence[Checkpoint], group: str | None = None) -> Checkpoint | None:
    """The one with the highest return of a group, the latest among equals; None if none has any.

    Args:
        group: whose return; None: that of all groups, which have to share their reward.
    """
    scores = [item.score if group is None else item.returns.get(group) for item in checkpoints]
    scored = [(score, item.iteration, item) for score, item in zip(scores, checkpoints) if score is not None]
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None


def returns_text(checkpoint: Checkpoint, best_for: Sequence[str | None] = ()) -> str:
    """`-7.61, best`; where groups are rewarded differently `adversary 12.30, best; agent -4.10`; empty without any.

    Args:
        best_for: the groups for which it is the best checkpoint; None among them: for all, which share their reward.
    """
    if checkpoint.score is not None:
        return f"{checkpoint.score:.2f}{', best' if best_for else ''}"
    returns = checkpoint.returns.items()
    return "; ".join(f"{name} {value:.2f}{', best' if name in best_for else ''}" for name, value in returns)


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

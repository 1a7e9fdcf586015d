"""Snapshots: weights of players on disk, in folders that are named by the SHA-256 of their content."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from marlnb.disk import problem_of
from marlnb.errors import CheckpointError, DiskError
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.runs.checkpoints.state_file import read_manifest, read_state, sync_folder, write_state

SNAPSHOTS = "snapshots"
HASH = re.compile("[0-9a-f]{64}")
TEMPORARY = ".writing-"
PolicyWeights = dict[str, dict[str, Tensor]]  # by group, by name


class SnapshotStore:
    """The snapshots in a league's folder. They stay on disk: `read` gives a new copy each time.

    Args:
        folder: of the league.
        spec: of the environment, whose spaces a snapshot must have.
    """

    def __init__(self, folder: Path, spec: EnvSpec) -> None:
        self.folder, self.spec = folder / SNAPSHOTS, spec

    def write(self, player: str, frames: int, weights: Mapping[str, Mapping[str, Any]]) -> str:
        """Writes a snapshot, unless there is an equal one; returns its SHA-256.

        Args:
            player: whose weights.
            frames: that they have learned from.
            weights: by group, of the whole policy; or the state of its learner.
        Raises:
            CheckpointError: it cannot be written.
        """
        temporary = self.folder / f"{TEMPORARY}{player}-{os.getpid()}"
        spaces = {name: _spaces(self.spec.group(name)) for name in weights}
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in self.folder.glob(f"{TEMPORARY}{player}-*"):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            temporary.mkdir(mode=0o700)
            sha256 = write_state(
                temporary, {"weights": weights}, {"player": player, "frames": frames, "spaces": spaces}
            )
            if self.path(sha256).exists():  # of a training run that was killed after it wrote it
                shutil.rmtree(temporary)
            else:
                temporary.rename(self.path(sha256))
            sync_folder(self.folder)
        except OSError as error:
            problem = error.problem if isinstance(error, DiskError) else problem_of(error, self.folder)
            raise CheckpointError(f"a snapshot of {player} cannot be written to {self.folder}: {problem}") from error
        return sha256

    def adopt(self, league: Path, sha256: str) -> None:
        """Copies a snapshot of another league's folder, unless there is an equal one; files are linked if possible.

        Raises:
            CheckpointError: it cannot be copied.
        """
        if self.path(sha256).exists():
            return
        temporary = self.folder / f"{TEMPORARY}{sha256}-{os.getpid()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(mode=0o700)
            for source in sorted((league / SNAPSHOTS / sha256).iterdir()):
                _link(source, temporary / source.name)
            temporary.rename(self.path(sha256))
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            problem = problem_of(error, self.folder)
            raise CheckpointError(
                f"the snapshot {sha256} of {league} cannot be copied to {self.folder}: {problem}"
            ) from error

    def keep_newest(self, n: int, last: str | None) -> None:
        """Deletes all snapshots but `last` and those that have learned from the most frames, n in all.

        Times of files do not tell which is newer: a clock may have been set back.
        """
        names = [path.name for path in self.folder.glob("*") if HASH.fullmatch(path.name)]
        for name in sorted(names, key=lambda name: (name == last, self._frames(name)))[:-n]:
            self.remove(name)

    def _frames(self, sha256: str) -> int:
        """That a snapshot has learned from; -1 if it is damaged."""
        try:
            return int(read_manifest(self.path(sha256))["frames"])
        except (CheckpointError, KeyError, TypeError, ValueError):
            return -1

    def remove(self, sha256: str) -> None:
        """Deletes a snapshot, if it exists."""
        shutil.rmtree(self.path(sha256), ignore_errors=True)

    def read(self, player: str, sha256: str | None) -> PolicyWeights:
        """A snapshot's weights by group, on the CPU, with every hash verified.

        Args:
            player: the snapshot's id, for messages.
            sha256: its hash.
        Raises:
            CheckpointError: it is missing, damaged, not the one of this hash, or of other observations or actions.
        """
        if sha256 is None or not self.path(sha256).is_dir():
            raise CheckpointError(
                f"the snapshot {player} is missing: no folder {self.folder / str(sha256)}. Nothing else was changed; "
                "restore the folder, for example from a backup of the run, and resume"
            )
        manifest = read_manifest(self.path(sha256))
        if manifest["sha256"] != sha256:
            raise CheckpointError(
                f"{self.path(sha256)}, the snapshot {player}, has the content of {manifest['sha256']}"
            )
        for name, theirs in dict(manifest.get("spaces", {})).items():
            ours = _spaces(self.spec.group(name)) if name in self.spec.group_names else None
            if theirs != ours:
                raise CheckpointError(
                    f"the snapshot {player} was made for group {name!r} with {_text(theirs)}; "
                    f"{self.spec.name} has {_text(ours)}"
                )
        try:
            weights: PolicyWeights = read_state(self.path(sha256))["weights"]
        except CheckpointError as error:
            raise CheckpointError(f"the snapshot {player} cannot be read: {error}") from error
        return weights

    def path(self, sha256: str) -> Path:
        """The folder of a snapshot. Raises CheckpointError: the name is no hash, as of a folder elsewhere."""
        if not HASH.fullmatch(sha256):
            raise CheckpointError(f"{sha256[:80]!r} is not the SHA-256 of a snapshot in {self.folder}")
        return self.folder / sha256


def _link(source: Path, target: Path) -> None:
    """A hard link, or a copy on a file system without them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _spaces(group: GroupSpec) -> dict[str, Any]:
    action = group.action
    bounds = [list(action.low), list(action.high)]
    return {
        "agents": group.n_agents,
        "observation": list(group.observation.shape),
        "action": [action.kind, list(action.n), bounds],
    }


def _text(spaces: Mapping[str, Any] | None) -> str:
    return "no such group" if spaces is None else ", ".join(f"{name} {value}" for name, value in spaces.items())

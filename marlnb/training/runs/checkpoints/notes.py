"""CheckpointNotes: notes on a run's checkpoints, and their evaluations, stored with the run.

One JSON file, replaced as a whole. Entries belong to weights, by their hash: if an iteration is trained again with
another result, its checkpoint starts without notes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marlnb.errors import RunError, shown
from marlnb.training.policies.evaluation import Evaluation
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint
from marlnb.training.runs.files import read_json, write_atomically
from marlnb.training.runs.lock import wait_for_lock
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import Which

NOTES = "checkpoint_notes.json"


class CheckpointNotes:
    """Notes and evaluations of a run's checkpoints.

    Attributes:
        run: whose checkpoints.
        path: the file; it exists once something has been stored.
    """

    def __init__(self, run: str | os.PathLike[str] | Run) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.path = self.run.path / NOTES

    def note(self, which: Which | Checkpoint = "last") -> str:
        """The note on a checkpoint; empty if there is none.

        Raises:
            CheckpointError: there is no such checkpoint.
            RunError: the file is damaged.
        """
        return str(self._of(which).get("note", ""))

    def write(self, which: Which | Checkpoint, text: str) -> None:
        """Replaces the note on a checkpoint; an empty text deletes it. Raises as `note`."""
        with self._changing(which) as entry:
            entry["note"] = text

    def evaluations(self, which: Which | Checkpoint = "last") -> list[dict[str, Any]]:
        """Stored evaluations of a checkpoint, oldest first: `Evaluation.to_json()`, with `returns[group][episode]`."""
        return list(self._of(which).get("evaluations", []))

    def keep(self, evaluation: Evaluation) -> dict[str, Any]:
        """Stores an evaluation with its checkpoint. It replaces one of the same episodes under the same conditions.

        Raises:
            RunError: it does not belong to a checkpoint, like that of a random policy.
            As `note`.
        """
        if evaluation.checkpoint is None:
            raise RunError(f"an evaluation of the policy {evaluation.policy!r} does not belong to a checkpoint")
        returns = {} if evaluation.table is None else evaluation.table.to_json()
        data = {**evaluation.to_json(), "returns": returns, "made": time.time()}
        with self._changing(evaluation.checkpoint) as entry:
            others = [old for old in entry.get("evaluations", []) if not is_comparable(old, data)]
            entry["evaluations"] = [*others, data]
        return data

    def _of(self, which: Which | Checkpoint) -> dict[str, Any]:
        return self._read().get(self._checkpoint(which).sha256, {})

    def _checkpoint(self, which: Which | Checkpoint) -> Checkpoint:
        return which if isinstance(which, Checkpoint) else self.run.checkpoint(which)

    def _read(self) -> dict[str, dict[str, Any]]:
        """The entries by hash."""
        entries = read_json(self.path) if self.path.exists() else {}
        for entry in entries.values():
            evaluations = entry.get("evaluations", []) if isinstance(entry, dict) else None
            if not isinstance(evaluations, list) or not all(map(_has_means, evaluations)):
                raise RunError(f"{self.path} is damaged: expected a note and evaluations; got {shown(entry)}")
        return entries

    @contextmanager
    def _changing(self, which: Which | Checkpoint) -> Iterator[dict[str, Any]]:
        """The entry of a checkpoint, written back at the end."""
        checkpoint = self._checkpoint(which)
        with wait_for_lock(self.path.with_name(f".{NOTES}.lock")):
            entries = self._read()
            entry = entries.setdefault(checkpoint.sha256, {})
            yield entry
            entry["iteration"] = checkpoint.iteration
            write_atomically(self.path, json.dumps(entries, indent=1, allow_nan=False) + "\n")


def is_comparable(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two evaluations played the same episodes in the same way, so that they can be compared one by one."""
    names = ("env", "episodes", "seed", "explore", "edits")
    return all(first.get(name) == second.get(name) for name in names)


def _has_means(evaluation: Any) -> bool:
    """Whether the mean returns of a stored evaluation, if it has any, are numbers by group."""
    means = evaluation.get("return_mean", {}) if isinstance(evaluation, dict) else None
    return isinstance(means, dict) and all(isinstance(mean, int | float | None) for mean in means.values())

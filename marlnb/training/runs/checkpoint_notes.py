"""CheckpointNotes: what a person noted of a run's checkpoints, and how they were found to do; kept with the run.

One JSON file, replaced as a whole. What is known belongs to the weights, by their hash: a checkpoint that is trained
anew under the same iteration begins without notes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marlnb.errors import RunError
from marlnb.training.policies.evaluation import Evaluation
from marlnb.training.runs.checkpoint import Checkpoint
from marlnb.training.runs.files import read_json, write_atomically
from marlnb.training.runs.lock import wait_for_lock
from marlnb.training.runs.run import Run
from marlnb.training.runs.run_folder import Which

NOTES = "checkpoint_notes.json"


class CheckpointNotes:
    """Notes and evaluations of a run's checkpoints.

    Attributes:
        path: the file; it is there when something has been kept.
    """

    def __init__(self, run: str | os.PathLike[str] | Run) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.path = self.run.path / NOTES

    def note(self, which: Which | Checkpoint = "last") -> str:
        """What was noted of a checkpoint; empty where nothing was.

        Raises:
            CheckpointError: there is no such checkpoint. RunError: the file is damaged.
        """
        return str(self._of(which).get("note", ""))

    def write(self, which: Which | Checkpoint, text: str) -> None:
        """Keeps a note in the place of an earlier one; an empty one takes it away. Raises as `note`."""
        with self._changing(which) as entry:
            entry["note"] = text

    def evaluations(self, which: Which | Checkpoint = "last") -> list[dict[str, Any]]:
        """Evaluations kept of a checkpoint, oldest first: `Evaluation.to_json()`, with `returns[group][episode]`."""
        return list(self._of(which).get("evaluations", []))

    def keep(self, evaluation: Evaluation) -> dict[str, Any]:
        """Keeps an evaluation with its checkpoint; one of the same episodes, done alike, gives way to it.

        Raises:
            RunError: it is of no checkpoint, as that of a random policy. As `note`.
        """
        if evaluation.checkpoint is None:
            raise RunError(f"an evaluation of the policy {evaluation.policy!r} belongs to no checkpoint")
        returns = {} if evaluation.table is None else evaluation.table.to_json()
        kept = {**evaluation.to_json(), "returns": returns, "made": time.time()}
        with self._changing(evaluation.checkpoint) as entry:
            others = [old for old in entry.get("evaluations", []) if not is_alike(old, kept)]
            entry["evaluations"] = [*others, kept]
        return kept

    def _of(self, which: Which | Checkpoint) -> dict[str, Any]:
        return dict(self._read().get(self._checkpoint(which).sha256, {}))

    def _checkpoint(self, which: Which | Checkpoint) -> Checkpoint:
        return which if isinstance(which, Checkpoint) else self.run.checkpoint(which)

    def _read(self) -> dict[str, Any]:
        return read_json(self.path) if self.path.exists() else {}

    @contextmanager
    def _changing(self, which: Which | Checkpoint) -> Iterator[dict[str, Any]]:
        """What is known of a checkpoint, written back at the end."""
        checkpoint = self._checkpoint(which)
        with wait_for_lock(self.path.with_name(f".{NOTES}.lock")):
            known = self._read()
            entry = known.setdefault(checkpoint.sha256, {})
            yield entry
            entry["iteration"] = checkpoint.iteration
            write_atomically(self.path, json.dumps(known, indent=1, allow_nan=False) + "\n")


def is_alike(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two evaluations played the same episodes in the same way, so that they can be compared one by one."""
    names = ("env", "episodes", "seed", "explore", "edits")
    return all(first.get(name) == second.get(name) for name in names)

"""CheckpointRows: what the table of checkpoints says of each."""

from __future__ import annotations

import time
from collections.abc import Sequence

from marlnb.formatting import format_bytes, format_count
from marlnb.training.runs.checkpoint import Checkpoint, best_checkpoint
from marlnb.training.runs.checkpoint_notes import CheckpointNotes
from marlnb.widgets.core.sizes import folder_bytes
from marlnb.widgets.runs.checkpoint_evaluation import told_score

HEADER = ("iteration", "frames", "score", "saved", "size", "evaluated", "note")


class CheckpointRows:
    """The cells of each checkpoint; sizes and times are read from disk once."""

    def __init__(self, notes: CheckpointNotes) -> None:
        self._notes = notes
        self._facts: dict[str, tuple[float, int]] = {}

    def measured(self, found: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Those whose size and time are known: a training may just have removed one."""
        return [one for one in found if self._is_measured(one)]

    def of(self, checkpoints: Sequence[Checkpoint]) -> dict[str, list[str]]:
        """By iteration; of those that were measured."""
        best = best_checkpoint(list(checkpoints))
        return {str(one.iteration): self._cells(one, one == best) for one in checkpoints}

    def _cells(self, one: Checkpoint, is_best: bool) -> list[str]:
        saved, size = self._facts[one.sha256]
        evaluated = self._notes.evaluations(one)
        return [
            str(one.iteration),
            format_count(one.frames),
            "" if one.score is None else f"{one.score:.2f}{', best' if is_best else ''}",
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(saved)),
            format_bytes(size),
            told_score(evaluated[-1]) if evaluated else "",
            self._notes.note(one),
        ]

    def _is_measured(self, one: Checkpoint) -> bool:
        if one.sha256 not in self._facts:
            try:
                self._facts[one.sha256] = (one.path.stat().st_mtime, folder_bytes(one.path))
            except FileNotFoundError:
                return False
        return True

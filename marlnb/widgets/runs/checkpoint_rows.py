"""CheckpointRows: the cells of the table of checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence

from marlnb.display.formatting import format_bytes, format_count
from marlnb.training.runs.checkpoints.checkpoint import Checkpoint, best_checkpoint, competing_groups, returns_text
from marlnb.training.runs.checkpoints.notes import CheckpointNotes
from marlnb.widgets.runs.checkpoint_evaluation import score_text

HEADER = ("iteration", "frames", "return", "saved", "size", "evaluated", "note")


class CheckpointRows:
    """The cells of each checkpoint. Sizes and times are read from disk once."""

    def __init__(self, notes: CheckpointNotes) -> None:
        self._notes = notes
        self._times_and_sizes: dict[str, tuple[float, int]] = {}

    def measured(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """The checkpoints whose size and time can be read: a training run may have just removed one."""
        measured = []
        for checkpoint in checkpoints:
            try:
                if checkpoint.sha256 not in self._times_and_sizes:
                    saved = checkpoint.path.stat().st_mtime
                    size = sum(path.stat().st_size for path in checkpoint.path.rglob("*") if path.is_file())
                    self._times_and_sizes[checkpoint.sha256] = (saved, size)
            except FileNotFoundError:
                continue
            measured.append(checkpoint)
        return measured

    def of(self, checkpoints: Sequence[Checkpoint]) -> dict[str, list[str]]:
        """The cells of measured checkpoints, by iteration."""
        competing = competing_groups(checkpoints)
        best = {group: best_checkpoint(checkpoints, group) for group in competing or (None,)}
        return {
            str(checkpoint.iteration): self._cells(checkpoint, [group for group in best if best[group] == checkpoint])
            for checkpoint in checkpoints
        }

    def _cells(self, checkpoint: Checkpoint, best_for: Sequence[str | None]) -> list[str]:
        saved, size = self._times_and_sizes[checkpoint.sha256]
        evaluations = self._notes.evaluations(checkpoint)
        return [
            str(checkpoint.iteration),
            format_count(checkpoint.frames),
            returns_text(checkpoint, best_for),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(saved)),
            format_bytes(size),
            score_text(evaluations[-1]) if evaluations else "",
            self._notes.note(checkpoint),
        ]

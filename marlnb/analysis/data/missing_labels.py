"""What a result says of rows that had no label, and so were left out: a note, or a doubt where few remain."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

FEW_REMAIN = 0.5  # of the rows that were asked about


@dataclass(frozen=True)
class LeftOut:
    """Gathers what is to be said: `notes` beside a result, `doubts` where more is missing than remains."""

    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def add(self, who: str, label: str, asked: np.ndarray, known: np.ndarray, missing: np.ndarray) -> None:
        """Of the rows asked about, those that have no label.

        Args:
            who: the agent, with what else tells this question from others.
            asked, known, missing: `[row]` bool; missing: those at which the label is not a number.
        """
        n, dropped = int(asked.sum()), asked & ~known
        nan, other = int((dropped & missing).sum()), int((dropped & ~missing).sum())
        reasons = [
            *([f"at {nan} {label!r} is not a number"] if nan else []),
            *([f"at {other} it is not known, since that agent did not act or had ended"] if other else []),
        ]
        if reasons:
            few = nan + other > FEW_REMAIN * n
            told = f"{who}: {nan + other} of {n} rows are left out: {' and '.join(reasons)}"
            (self.doubts if few else self.notes).append(told)


def not_a_number(values: np.ndarray) -> np.ndarray:
    """Where labels of any type hold NaN or an infinity, bool of the same shape."""
    return ~np.isfinite(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)


def told_of(notes: tuple[str, ...]) -> str:
    """Notes as they stand behind a result in its own line."""
    return "".join(f"; {note}" for note in notes)

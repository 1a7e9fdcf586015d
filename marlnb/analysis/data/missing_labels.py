"""Messages about rows that an analysis leaves out because they have no label."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

MAX_MISSING_SHARE = 0.5  # of the rows considered; a larger share is a warning, a smaller one a note


@dataclass(frozen=True)
class MissingLabels:
    """Collects messages about missing labels.

    Attributes:
        notes: messages to show with the result.
        warnings: messages where more rows are missing than remain.
    """

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, who: str, label: str, considered: np.ndarray, known: np.ndarray, not_numbers: np.ndarray) -> None:
        """Adds a message if any of the rows considered has no label.

        Args:
            who: the agent, with whatever else tells this message from others.
            label: the label's name.
            considered: `[row]` bool, the rows that the analysis is about.
            known: `[row]` bool, the rows that have a label.
            not_numbers: `[row]` bool, the rows whose label is not a number.
        """
        n_rows, dropped = int(considered.sum()), considered & ~known
        n_nan, n_unknown = int((dropped & not_numbers).sum()), int((dropped & ~not_numbers).sum())
        why = "that agent did not act, was not alive, or its episode's end was not recorded"
        reasons = [
            *([f"at {n_nan} {label!r} is not a number"] if n_nan else []),
            *([f"at {n_unknown} it is unknown because {why}"] if n_unknown else []),
        ]
        if reasons:
            n_missing = n_nan + n_unknown
            messages = self.warnings if n_missing > MAX_MISSING_SHARE * n_rows else self.notes
            messages.append(f"{who}: {n_missing} of {n_rows} rows are left out: {' and '.join(reasons)}")


def not_a_number(values: np.ndarray) -> np.ndarray:
    """Where labels of any type hold NaN or an infinity, bool of the same shape."""
    return ~np.isfinite(values) if values.dtype.kind in "fc" else np.zeros(values.shape, bool)

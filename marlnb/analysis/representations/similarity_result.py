"""How alike units are: a number, or a matrix of them, beside what chance gives and how far they can be trusted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True)
class Similarity:
    """How alike two views' units are at the same moments.

    Attributes:
        a, b: names of the views; a_units, b_units: how many units they have.
        low, high: 95% interval over episodes.
        shuffled: mean when each episode of a is paired with another one of b; shuffled_high: the largest of them.
        p_value: (1 + shuffles at least as alike) / (1 + shuffles).
        warnings: why this must not be trusted; empty where nothing is known against it.
    """

    method: str
    a: str
    b: str
    score: float
    low: float
    high: float
    shuffled: float
    shuffled_high: float
    p_value: float
    n_rows: int
    n_episodes: int
    a_units: int
    b_units: int
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One line."""
        return pd.DataFrame([{name: value for name, value in asdict(self).items() if name != "warnings"}])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        return (
            f"Similarity({self.a} ~ {self.b}: {self.method} {self.score:.2f} [{self.low:.2f}, {self.high:.2f}], "
            f"episodes shuffled {self.shuffled:.2f}{flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())


@dataclass(frozen=True)
class SimilarityMatrix:
    """How alike every view of one list is to every one of another.

    Attributes:
        rows, columns: names of the views.
        values, low, high, shuffled, p_value: `[row, column]`, as in `Similarity`.
    """

    method: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shuffled: np.ndarray
    p_value: np.ndarray
    warnings: tuple[str, ...] = ()

    def of(self, a: str, b: str) -> float:
        """The similarity of two views by name.

        Raises:
            AnalysisError: no such view.
        """
        for name, names in ((a, self.rows), (b, self.columns)):
            if name not in names:
                raise AnalysisError(unknown("view", name, names))
        return float(self.values[self.rows.index(a), self.columns.index(b)])

    def table(self) -> pd.DataFrame:
        """One line a pair."""
        arrays = {"score": self.values, "low": self.low, "high": self.high, "shuffled": self.shuffled}
        return pd.DataFrame(
            [
                {"a": a, "b": b, **{name: array[i, j] for name, array in arrays.items()}, "p_value": self.p_value[i, j]}
                for i, a in enumerate(self.rows)
                for j, b in enumerate(self.columns)
            ]
        )

    def to_json(self) -> dict[str, Any]:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        low, high = float(self.values.min()), float(self.values.max())
        return f"SimilarityMatrix({self.method}, {len(self.rows)} × {len(self.columns)}, {low:.2f} to {high:.2f}{flag})"

    def _repr_html_(self) -> str:
        square = pd.DataFrame(self.values, index=list(self.rows), columns=list(self.columns))
        return shown_as_html(repr(self), self.warnings, square, index=True)

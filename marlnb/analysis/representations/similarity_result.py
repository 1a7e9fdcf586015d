"""The result of a similarity analysis: one number or a matrix, next to chance."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, grid_table
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True)
class Similarity(Result):
    """How similar the units of two views are at the same time steps.

    Attributes:
        method: the similarity measure.
        a: name of the first view.
        b: name of the second view.
        score: the similarity.
        low: lower end of its 95% interval over episodes.
        high: upper end of that interval.
        shuffled: mean score when each episode of a is paired with another episode of b.
        shuffled_high: the largest of these scores.
        p_value: (1 + shuffles with at least the score) / (1 + shuffles).
        n_rows: shared time steps.
        n_episodes: their episodes.
        a_units: units of the first view.
        b_units: units of the second view.
        warnings: reasons not to trust the result.
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
        """A single row."""
        return pd.DataFrame([{name: value for name, value in asdict(self).items() if name != "warnings"}])

    def __repr__(self) -> str:
        return (
            f"Similarity({self.a} ~ {self.b}: {self.method} {self.score:.2f} [{self.low:.2f}, {self.high:.2f}], "
            f"episodes shuffled {self.shuffled:.2f}{self.remarks})"
        )


@dataclass(frozen=True, eq=False)
class SimilarityMatrix(Result):
    """How similar each view of one list is to each view of another.

    Attributes:
        method: the similarity measure.
        rows: names of the row views.
        columns: names of the column views.
        values: `[row, column]`, scores.
        low: `[row, column]`, lower ends of their 95% intervals over episodes.
        high: `[row, column]`, upper ends of these intervals.
        shuffled: `[row, column]`, mean scores with episodes paired at random.
        p_value: `[row, column]`.
        warnings: reasons not to trust the result.
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
            AnalysisError: unknown view.
        """
        for name, names in ((a, self.rows), (b, self.columns)):
            if name not in names:
                raise AnalysisError(unknown("view", name, names))
        return float(self.values[self.rows.index(a), self.columns.index(b)])

    def table(self) -> pd.DataFrame:
        """One row for each pair."""
        values = {"score": self.values, "low": self.low, "high": self.high, "shuffled": self.shuffled}
        return grid_table({"a": self.rows}, {"b": self.columns}, {**values, "p_value": self.p_value})

    def _html_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=list(self.rows), columns=list(self.columns))

    def __repr__(self) -> str:
        low, high = float(self.values.min()), float(self.values.max())
        return (
            f"SimilarityMatrix({self.method}, {len(self.rows)} × {len(self.columns)}, {low:.2f} to {high:.2f}"
            f"{self.remarks})"
        )

"""The result of a similarity analysis: one number or a matrix, next to chance."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result, grid_table
from marlnb.errors import AnalysisError, unknown

MAX_TEXT_COLUMNS = 5
NO_UNTRAINED = "there is no untrained control: networks that see the same are alike before they are trained"


@dataclass(frozen=True, repr=False)
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
        n_shuffles: pairings behind `shuffled` and `p_value`.
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
    n_shuffles: int
    n_rows: int
    n_episodes: int
    a_units: int
    b_units: int
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """A single row."""
        return pd.DataFrame([{name: value for name, value in asdict(self).items() if name != "warnings"}])

    @property
    def verdict(self) -> str:
        """Whether the units are more alike at the same time steps than in episodes paired at random."""
        beyond = "more alike" if self.p_value < ALPHA else "not shown to be more alike"
        too_few = f"{self.n_shuffles} pairings: too few to test"
        tested = f"p = {self.p_value:.2g}" if _can_test(self.n_shuffles) else too_few
        return (
            f"{self.a} and {self.b} are {beyond} at the same steps than in episodes paired at random: {self.method} "
            f"{self.score:.2f} [{self.low:.2f}, {self.high:.2f}], at random {self.shuffled:.2f} "
            f"(n = {self.n_episodes} episodes, {tested}); {NO_UNTRAINED}."
        )


def _can_test(n_shuffles: int) -> bool:
    """Whether so many shuffles allow a p-value below the level of a test."""
    return 1 / (1 + n_shuffles) < ALPHA


@dataclass(frozen=True, eq=False, repr=False)
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
        p_value: `[row, column]`, not corrected for the number of pairs.
        n_shuffles: pairings behind each of these.
        n_episodes: the fewest episodes of a pair.
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
    n_shuffles: int
    n_episodes: int
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

    @property
    def verdict(self) -> str:
        """How many pairs are more alike than in episodes paired at random, and the most alike pair."""
        pairs = self._pairs()
        if not pairs:
            return f"{self.rows[0]} was compared with itself only."
        above = sum(self.low[pair] > self.shuffled[pair] for pair in pairs)
        most, least = max(pairs, key=self.values.__getitem__), min(pairs, key=self.values.__getitem__)
        return (
            f"{above} of {len(pairs)} pairs are more alike at the same steps than in episodes paired at random (lower "
            f"end of the 95% interval above the mean of {self.n_shuffles} pairings; n = {self.n_episodes} episodes); "
            f"the most alike are {self._describe(most)}, the least {self._describe(least)}; {NO_UNTRAINED}."
        )

    def _pairs(self) -> list[tuple[int, int]]:
        """(row, column) of different views; where a pair is there in both orders with one score, the first."""
        symmetric = self.rows == self.columns and np.array_equal(self.values, self.values.T)
        return [
            (i, j)
            for i, row in enumerate(self.rows)
            for j, column in enumerate(self.columns)
            if row != column and not (symmetric and j < i)
        ]

    def _describe(self, pair: tuple[int, int]) -> str:
        values = (matrix[pair] for matrix in (self.values, self.low, self.high, self.shuffled))
        numbers = "{:.2f} [{:.2f}, {:.2f}], at random {:.2f}".format(*values)
        return f"{self.rows[pair[0]]} and {self.columns[pair[1]]} ({self.method} {numbers})"

    def _repr_table(self) -> pd.DataFrame:
        return self._html_table().iloc[:, :MAX_TEXT_COLUMNS]

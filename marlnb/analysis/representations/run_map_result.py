"""RunMap: runs as points, near each other where their agents' units are alike, with their returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result
from marlnb.display.formatting import format_number

EQUAL_SHARE = 0.1  # returns count as equal if they differ by less than this share of their range or of their size


@dataclass(frozen=True, eq=False, repr=False)
class RunMap(Result):
    """Runs by what their agents' units represent.

    Attributes:
        runs: names of the runs.
        site: whose units were compared.
        agent: whose observations all runs received.
        returns: `[run]`, the latest mean return of one agent of the site's group; NaN where it is not
            known, as of members of a population.
        mode: of the returns: "exploring" of the latest training episodes, "greedy" of the last evaluation.
        similarity: `[run, run]`, linear CKA of the units at the same observations, from 0 to 1.
        low: `[run, run]`, lower end of its 95% interval over episodes.
        high: `[run, run]`, upper end.
        shuffled: `[run, run]`, the similarity with episodes in random order, the control.
        positions: `[run, 2]`, whose distances are as near as possible to `sqrt(2 - 2 similarity)`.
        explained: share of these squared distances that two dimensions show.
        episode: `[run, run]`, of the observation at which two runs' units differ most.
        step: `[run, run]`, its time step in the episode.
        warnings: reasons not to trust the result.
    """

    runs: tuple[str, ...]
    site: str
    agent: str
    returns: np.ndarray
    mode: str
    similarity: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shuffled: np.ndarray
    positions: np.ndarray
    explained: float
    episode: np.ndarray
    step: np.ndarray
    warnings: tuple[str, ...] = ()

    @property
    def most_different(self) -> tuple[str, str] | None:
        """Of the pairs of runs with equal returns, the one with the least similar units; None without such a pair."""
        table = self.table()
        equal = table[table["equal_returns"]]
        return None if equal.empty else (str(equal.iloc[0]["a"]), str(equal.iloc[0]["b"]))

    @property
    def verdict(self) -> str:
        """The pair with equal returns and the least similar units, and where to look; of all where none is known."""
        where, table = f"At {self.agent} {self.site}", self.table()
        equal = table[table["equal_returns"]]
        row = (table if equal.empty else equal).iloc[0]
        returns = f"{format_number(row['return_a'])} and {format_number(row['return_b'])}"
        alike = f"equal returns ({returns}) and"
        if np.isfinite(self.returns).sum() < 2:
            alike = "no known returns to compare, and"
        elif equal.empty:
            return f"{where}, no two runs have equal returns, so a different representation may mean a different skill."
        return (
            f"{where}, {row['a']} and {row['b']} have {alike} the least similar units: CKA {row['similarity']:.2f} "
            f"(95% interval {row['low']:.2f} to {row['high']:.2f}, shuffled {row['shuffled']:.2f}). They differ most "
            f"in episode {row['episode']}, step {row['step']}."
        )

    def table(self) -> pd.DataFrame:
        """One row for each pair, the least similar first."""
        rows, columns = np.triu_indices(len(self.runs), 1)
        known = self.returns[np.isfinite(self.returns)]
        scale = max(np.ptp(known), np.abs(known).mean()) if known.size else 0.0
        gaps = np.abs(self.returns[rows] - self.returns[columns])
        names = ("similarity", "low", "high", "shuffled", "episode", "step")
        table = pd.DataFrame(
            {
                "a": [self.runs[k] for k in rows],
                "b": [self.runs[k] for k in columns],
                "return_a": self.returns[rows],
                "return_b": self.returns[columns],
                "equal_returns": gaps <= EQUAL_SHARE * scale,
                **{name: getattr(self, name)[rows, columns] for name in names},
            }
        )
        return table.sort_values("similarity", kind="stable").reset_index(drop=True)

    def _repr_table(self) -> pd.DataFrame:
        return self.table()

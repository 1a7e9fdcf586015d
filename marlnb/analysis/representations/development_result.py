"""The result of a development analysis: what became decodable, tuned or similar, when in training, and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, grid_table

MAX_TEXT_COLUMNS = 5


@dataclass(frozen=True, eq=False, repr=False)
class Development(Result):
    """A score of each site at each checkpoint.

    Attributes:
        what: the score, for example `goal decoded (balanced accuracy)`.
        sites: `[site]`, the sites' names, with the agent's name where a site has several agents.
        iterations: `[checkpoint]`, ascending.
        values: `[site, checkpoint]`, scores.
        low: `[site, checkpoint]`, lower ends of their 95% intervals.
        high: `[site, checkpoint]`, upper ends of these intervals.
        control: `[site, checkpoint]`, the score of the observation alone (decoding), or chance (tuning, similarity).
        control_name: the control, in words.
        untrained: `[site, checkpoint]`, the score in a network of the same architecture with random weights; NaN where
            there is none, as for similarity.
        returns: by group, `[checkpoint]`, mean return of the recorded episodes; NaN if none ended.
        warnings: reasons not to trust the result.
    """

    what: str
    sites: tuple[str, ...]
    iterations: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    control: np.ndarray
    control_name: str
    untrained: np.ndarray
    returns: dict[str, np.ndarray]
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One row for each site and checkpoint."""
        values = {"value": self.values, "low": self.low, "high": self.high, self.control_name: self.control}
        if np.isfinite(self.untrained).any():
            values["untrained network"] = self.untrained
        return grid_table({"site": self.sites}, {"iteration": self.iterations}, values)

    def _html_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=list(self.sites), columns=[int(c) for c in self.iterations])

    @property
    def verdict(self) -> str:
        """How the score of the site that changed most developed, and whether it ended above its control."""
        change = self.values[:, -1] - self.values[:, 0]
        most = int(np.nanargmax(np.abs(change))) if np.isfinite(change).any() else 0
        start, end = (self._describe(most, k) for k in (0, -1))
        low, high = self.low[most, -1], self.high[most, -1]
        controls = {self.control_name: self.control[most, -1], "untrained network": self.untrained[most, -1]}
        controls = {name: value for name, value in controls.items() if np.isfinite(value)}
        highest = max(controls.values(), default=np.nan)
        place = "above" if low > highest else "below" if high < highest else "not separable from"
        listed = ", ".join(f"{name}: {value:.2f}" for name, value in controls.items())
        missing = "" if "untrained network" in controls else "there is no untrained control; "
        return (
            f"{self.what} changed most at {self.sites[most]} (of {len(self.sites)} sites): from {start} at iteration "
            f"{self.iterations[0]} to {end} at iteration {self.iterations[-1]}, where it is {place} its control"
            f"{'s' * (len(controls) > 1)} ({listed}); {missing}changes between checkpoints of one run are not tested."
        )

    def _describe(self, site: int, checkpoint: int) -> str:
        value, low, high = (matrix[site, checkpoint] for matrix in (self.values, self.low, self.high))
        return f"{value:.2f}" if low == high else f"{value:.2f} [{low:.2f}, {high:.2f}]"

    def _repr_table(self) -> pd.DataFrame:
        table = self._html_table()
        shown = np.unique(np.linspace(0, table.shape[1] - 1, MAX_TEXT_COLUMNS).round().astype(int))
        return table.iloc[:, shown]

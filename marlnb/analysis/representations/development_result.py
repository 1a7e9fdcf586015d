"""The result of a development analysis: what became decodable, tuned or similar, when in training, and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, grid_table


@dataclass(frozen=True, eq=False)
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
    returns: dict[str, np.ndarray]
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One row for each site and checkpoint."""
        values = {"value": self.values, "low": self.low, "high": self.high, self.control_name: self.control}
        return grid_table({"site": self.sites}, {"iteration": self.iterations}, values)

    def _html_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=list(self.sites), columns=[int(c) for c in self.iterations])

    def __repr__(self) -> str:
        first, last = self.values[:, 0], self.values[:, -1]
        best = int(np.nanargmax(last))
        return (
            f"Development({self.what}: {len(self.sites)} sites, checkpoints {self.iterations[0]} to "
            f"{self.iterations[-1]}; {self.sites[best]} {first[best]:.2f} to {last[best]:.2f}{self.remarks})"
        )

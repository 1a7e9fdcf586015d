"""The result of a development analysis: what became decodable, tuned or similar, when in training, and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, grid_table

MAX_TEXT_COLUMNS = 5
UNTRAINED = "untrained network"


@dataclass(frozen=True, eq=False, repr=False)
class Development(Result):
    """A score of each site at each checkpoint.

    Attributes:
        what: the score, for example `goal decoded (balanced accuracy)`.
        sites: `[site]`, the sites' names, with the agent's name where a site has several agents.
        iterations: `[checkpoint]`, ascending.
        values: `[site, checkpoint]`, scores; NaN where there is none, for which `warnings` has the reason.
        low: `[site, checkpoint]`, lower ends of their 95% intervals; NaN where there is none, as for tuning.
        high: `[site, checkpoint]`, upper ends of these intervals.
        control: `[site, checkpoint]`, the score of the observation alone (decoding), or chance (similarity); NaN for
            tuning, whose p-values are corrected for the number of units: by chance, 95% of networks have no tuned unit.
        control_name: the control, in words; empty for tuning.
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
        controls = {name: values for name, values in self._controls.items() if np.isfinite(values).any()}
        values = {"value": self.values, "low": self.low, "high": self.high, **controls}
        return grid_table({"site": self.sites}, {"iteration": self.iterations}, values)

    def _html_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=list(self.sites), columns=[int(c) for c in self.iterations])

    @property
    def verdict(self) -> str:
        """How the score of the site that changed most developed, and whether it ended above its control."""
        known = np.isfinite(self.values)
        first, last = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        several = known.sum(axis=1) > 1
        if not several.any():
            return f"{self.what}: no site has a score at two checkpoints, so no change is known."
        site = np.arange(len(self.sites))
        change = np.where(several, np.abs(self.values[site, last] - self.values[site, first]), -1)
        most = int(change.argmax())
        start, end = int(first[most]), int(last[most])
        return (
            f"{self.what} changed most at {self.sites[most]} (of {len(self.sites)} sites): from "
            f"{self._describe(most, start)} to {self._describe(most, end)}, {self._comparison(most, end)}; changes "
            "between checkpoints of one run are not tested."
        )

    @property
    def _controls(self) -> dict[str, np.ndarray]:
        """By name, `[site, checkpoint]`."""
        return {self.control_name: self.control, UNTRAINED: self.untrained}

    def _comparison(self, site: int, checkpoint: int) -> str:
        """How a score compares with its controls; one without an interval is not tested."""
        at = {name: values[site, checkpoint] for name, values in self._controls.items()}
        controls = {name: value for name, value in at.items() if np.isfinite(value)}
        if not controls:
            return "where it has no control"
        low, high, highest = self.low[site, checkpoint], self.high[site, checkpoint], max(controls.values())
        place = "above" if low > highest else "below" if high < highest else "not separable from"
        comparison = "not tested against" if np.isnan(low) else f"where it is {place}"
        listed = ", ".join(f"{name}: {value:.2f}" for name, value in controls.items())
        missing = "" if UNTRAINED in controls else "; there is no untrained control"
        return f"{comparison} its control{'s' * (len(controls) > 1)} ({listed}){missing}"

    def _describe(self, site: int, checkpoint: int) -> str:
        value, low, high = (matrix[site, checkpoint] for matrix in (self.values, self.low, self.high))
        score = f"{value:.2f}" if np.isnan(low) else f"{value:.2f} [{low:.2f}, {high:.2f}]"
        return f"{score} at iteration {self.iterations[checkpoint]}"

    def _repr_table(self) -> pd.DataFrame:
        table = self._html_table()
        shown = np.unique(np.linspace(0, table.shape[1] - 1, MAX_TEXT_COLUMNS).round().astype(int))
        return table.iloc[:, shown]

"""The result of causal tracing: where and when restoring an activation repairs a corrupted episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, grid_table
from marlnb.display.formatting import format_number
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True, eq=False, repr=False)
class Tracing(Result):
    """Shares of a corruption's effect that are recovered when one site of one agent is restored for some steps.

    Attributes:
        corruption: the edits that corrupt, as plain data.
        outcome: what is recovered, for example "return of listener".
        units: of `clean` and `corrupted`.
        clean: mean outcome of the clean episodes.
        corrupted: mean outcome of the corrupted episodes.
        sites: `[line]`, the site of each line of the grid.
        agents: `[line]`, the agent of each line.
        times: `[time]`, the first restored step of each column.
        span: restored steps.
        recovered: `[line, time]`, `(restored - corrupted) / (clean - corrupted)`: 0 is nothing, 1 is everything; NaN if
            the corruption changes nothing.
        low: `[line, time]`, lower end of its 95% bootstrap interval over episodes (paired).
        high: `[line, time]`, upper end of that interval.
        settings: the options, enough to repeat the tracing.
        warnings: reasons not to trust the result.
    """

    corruption: tuple[dict[str, Any], ...]
    outcome: str
    units: str
    clean: float
    corrupted: float
    sites: tuple[str, ...]
    agents: tuple[str, ...]
    times: tuple[int, ...]
    span: int
    recovered: np.ndarray
    low: np.ndarray
    high: np.ndarray
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def of(self, site: str, agent: str | None = None) -> np.ndarray:
        """Recovered shares of one line, `[time]`.

        Raises:
            AnalysisError: no line matches, or more than one.
        """
        lines = list(zip(self.sites, self.agents))
        matches = [k for k, line in enumerate(lines) if line[0] == site and agent in (None, line[1])]
        if len(matches) != 1:
            available = [f"{site} of {agent}" for site, agent in lines]
            raise AnalysisError(f"{len(matches)} lines match; {unknown('site', f'{site} of {agent}', available)}")
        return np.asarray(self.recovered[matches[0]])

    def table(self) -> pd.DataFrame:
        """One row for each cell of the grid."""
        values = {"recovered": self.recovered, "low": self.low, "high": self.high}
        return grid_table({"site": self.sites, "agent": self.agents}, {"t": self.times}, values)

    def _html_table(self) -> None:
        return None

    @property
    def verdict(self) -> str:
        clean, corrupted = format_number(self.clean, 3), format_number(self.corrupted, 3)
        episodes = f"{self.settings.get('episodes', '?')} episodes"
        if not np.isfinite(self.recovered).any():
            return f"The corruption does not change the {self.outcome} ({clean}, {self.units}); {episodes}."
        lost = f"the corruption changes the {self.outcome} from {clean} to {corrupted} ({self.units})"
        end = f"{episodes}; sites were restored one at a time, not together."
        finite = np.nan_to_num(self.recovered, nan=-np.inf)
        k, j = np.unravel_index(np.argmax(finite), finite.shape)
        cell = f"{self.sites[k]} of {self.agents[k]} at t={self.times[j]}"
        share = f"{self.recovered[k, j]:.0%} [{self.low[k, j]:.0%}, {self.high[k, j]:.0%}]"
        n_cells = f"the largest of {self.recovered.size}, not corrected"
        if self.low[k, j] > 0:
            return f"Restoring {cell} recovers most, {share} ({n_cells}): {lost}; {end}"
        return f"No single site and step is shown to recover it ({cell}: {share}, {n_cells}): {lost}; {end}"

    def _repr_table(self) -> pd.DataFrame:
        order = np.argsort(-np.nan_to_num(self.recovered, nan=-np.inf), axis=None)
        return self.table().iloc[order].reset_index(drop=True)

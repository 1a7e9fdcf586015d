"""The answer to a causal tracing: where and when what was corrupted can be put right again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError, unknown


@dataclass(frozen=True)
class Tracing:
    """Shares of a corruption's effect that come back when one site of one agent is restored for some steps.

    Attributes:
        corruption: the edits that corrupted, as plain data.
        outcome: what is recovered, as "return of listener"; units: of `clean` and `corrupted`, means over episodes.
        sites, agents: of each line of the grid. times: the first step restored, of each column; span: steps restored.
        recovered: `[line, time]`, (restored - corrupted) / (clean - corrupted): 0 nothing, 1 all of it.
        low, high: `[line, time]`, 95% bootstrap interval over episodes (paired).
        warnings: why this must not be trusted; empty where nothing is known against it.
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
        """`[time]`, of one line.

        Raises:
            AnalysisError: there is none, or more than one.
        """
        found = [
            k for k, line in enumerate(zip(self.sites, self.agents)) if line[0] == site and agent in (None, line[1])
        ]
        if len(found) != 1:
            lines = [f"{each} of {who}" for each, who in zip(self.sites, self.agents)]
            raise AnalysisError(f"{len(found)} lines; {unknown('site', f'{site} of {agent}', lines)}")
        return np.asarray(self.recovered[found[0]])

    def table(self) -> pd.DataFrame:
        """One line a cell of the grid."""
        rows = [
            {
                "site": site,
                "agent": agent,
                "t": t,
                "recovered": self.recovered[k, j],
                "low": self.low[k, j],
                "high": self.high[k, j],
            }
            for k, (site, agent) in enumerate(zip(self.sites, self.agents))
            for j, t in enumerate(self.times)
        ]
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name).tolist() for name in ("recovered", "low", "high")}
        return {**self.__dict__, **arrays}

    def __repr__(self) -> str:
        k, j = np.unravel_index(np.argmax(np.nan_to_num(self.recovered, nan=-np.inf)), self.recovered.shape)
        flag = doubts(self.warnings)
        return (
            f"Tracing({self.outcome}: clean {self.clean:.3g}, corrupted {self.corrupted:.3g}; most recovered: "
            f"{self.recovered[k, j]:.0%} at {self.sites[k]} of {self.agents[k]}, t={self.times[j]}{flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings)

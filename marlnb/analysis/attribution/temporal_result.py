"""The answer to an attribution over time: by lag, with the share of the state that came before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.plain_json import plain_json
from marlnb.analysis.results import doubts, shown_as_html


@dataclass(frozen=True, eq=False)
class TemporalAttribution:
    """What each of the last observations contributed to an output, through the state.

    Attributes:
        values: `[row, agent, lag, feature]` in `units`, lag 0 the step explained; NaN where the agent was not acting.
        state_values: `[row, agent]`, the share of the state that entered the first step, compared with zero.
        score, baseline_score: `[row, agent]`, the output, and that of baseline observations from the zero state.
        episode, t: `[row]`, of the steps explained.
    """

    values: np.ndarray
    state_values: np.ndarray
    score: np.ndarray
    baseline_score: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    agents: tuple[str, ...]
    feature_names: tuple[str, ...]
    group: str
    to: str
    target: str
    units: str
    n_steps: int
    baseline_name: str
    tolerance: float
    origin: Mapping[str, Any] = field(default_factory=dict)

    method = "integrated_gradients"

    @property
    def lookback(self) -> int:
        return self.values.shape[2] - 1

    @property
    def convergence_delta(self) -> np.ndarray:
        """`[row, agent]`: all values and the state's share minus (score - baseline_score)."""
        return self.values.sum((2, 3)) + self.state_values - (self.score - self.baseline_score)

    @property
    def relative_delta(self) -> np.ndarray:
        """`[row, agent]`: as a share of the sum of |values|, at least a thousandth of its mean."""
        size = np.abs(self.values).sum((2, 3)) + np.abs(self.state_values)
        floor = 1e-3 * float(np.nanmean(size)) if np.isfinite(size).any() else 0.0
        return np.abs(self.convergence_delta) / np.maximum(size, max(floor, 1e-30))

    @property
    def _known(self) -> np.ndarray:
        """`[row, agent]` bool: the agent acted, and everything is finite."""
        parts = np.isfinite(self.values).all((2, 3)), np.isfinite(self.state_values), np.isfinite(self.score)
        return np.asarray(np.logical_and.reduce(parts))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why this must not be trusted; empty where nothing is known against it."""
        acting = np.isfinite(self.score) | np.isfinite(self.baseline_score)
        if not acting.any():
            return ("no agent was acting at any of these rows",)
        known, found = self._known & acting, []
        if known.sum() != acting.sum():
            found.append(
                f"not finite at {int((acting & ~known).sum())} of {int(acting.sum())} rows of an agent that acts: what "
                "it observed, its state or the baseline is not; tables and figures leave them out"
            )
        if not known.any():
            return tuple(found)
        worst = float(np.quantile(self.relative_delta[known], 0.95))
        if worst > self.tolerance:
            found.append(
                f"did not converge: at one row of twenty {worst:.0%} or more of the output is unexplained "
                f"(tolerated: {self.tolerance:.0%}); raise n_steps"
            )
        if known.sum() > 1 and float(np.ptp(self.score[known])) == 0.0:
            found.append("the output never varies over these rows")
        return tuple(found)

    def table(self) -> pd.DataFrame:
        """By agent and lag: the mean over rows of the sum of |values| over features, and its share; the last line of an
        agent, lag None, is the state that came before. An agent that never acted has no line."""
        lines = []
        for k, agent in enumerate(self.agents):
            acting = self._known[:, k]
            if not acting.any():
                continue
            by_lag = np.abs(self.values[acting, k]).sum(-1).mean(0)
            sizes = [*by_lag, np.abs(self.state_values[acting, k]).mean()]
            for lag, size in zip([*range(self.lookback + 1), None], sizes):
                lines.append({"agent": agent, "lag": lag, "mean_abs": size, "share": size / sum(sizes)})
        return pd.DataFrame(lines)

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("group", "to", "target", "units", "n_steps", "baseline_name")}
        lags = self.table().to_dict("records")
        found: dict[str, Any] = plain_json({**told, "lags": lags, "warnings": list(self.warnings), **self.origin})
        return found

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        return (
            f"TemporalAttribution({self.target}, {self.group}: {len(self.score)} rows x {len(self.agents)} agents x "
            f"{self.lookback + 1} steps x {len(self.feature_names)} features, {self.units}{flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())

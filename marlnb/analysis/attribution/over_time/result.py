"""The result of an attribution over time: values by lag, and the share of the state before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.attribution.convergence import not_converged, relative_to, unexplained_share
from marlnb.analysis.data.row_condition import rows_note
from marlnb.analysis.results import Result


@dataclass(frozen=True, eq=False, repr=False)
class TemporalAttribution(Result):
    """What each of the last observations contributed to an output, through the recurrent state.

    Attributes:
        values: `[row, agent, lag, feature]` in `units`, lag 0 the explained step; NaN where the agent was not acting.
        state_values: `[row, agent]`, the contribution of the state that entered the first step, compared with zero.
        score: `[row, agent]`, the output.
        baseline_score: `[row, agent]`, the output of baseline observations from the zero state.
        episode: `[row]`, of the explained steps.
        t: `[row]`, the explained steps.
        agents: the explained agents.
        feature_names: of the last axis.
        group: the agents' group.
        to: kind of output, as `AttributionConfig.to`.
        target: the output in words.
        units: of the values.
        n_steps: quadrature points.
        baseline_name: the baseline in words.
        tolerance: share of the output that may be unexplained.
        origin: recording, checkpoint, experiment as JSON, and code version.
        rows: the condition that chose the explained steps; empty: none.
        given: names of what a step and its baseline have in common; empty: nothing.
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
    rows: str = ""
    given: tuple[str, ...] = ()

    method = "integrated_gradients"

    @property
    def lookback(self) -> int:
        return self.values.shape[2] - 1

    @property
    def convergence_delta(self) -> np.ndarray:
        """`[row, agent]`: the sum of values and state_values minus (score - baseline_score)."""
        return self.values.sum((2, 3)) + self.state_values - (self.score - self.baseline_score)

    @property
    def relative_delta(self) -> np.ndarray:
        """`[row, agent]`: |convergence_delta| / sum |values|; the sum is at least a thousandth of its mean."""
        return relative_to(np.abs(self.values).sum((2, 3)) + np.abs(self.state_values), self.convergence_delta)

    @property
    def _finite(self) -> np.ndarray:
        """`[row, agent]` bool: the agent acted, and everything is finite."""
        parts = np.isfinite(self.values).all((2, 3)), np.isfinite(self.state_values), np.isfinite(self.score)
        return np.asarray(np.logical_and.reduce(parts))

    @property
    def notes(self) -> tuple[str, ...]:
        return rows_note(self.rows)

    @property
    def warnings(self) -> tuple[str, ...]:
        acting = np.isfinite(self.score) | np.isfinite(self.baseline_score)
        if not acting.any():
            return ("no agent was acting at any of these rows",)
        finite, messages = self._finite & acting, []
        if finite.sum() != acting.sum():
            messages.append(
                f"not finite at {int((acting & ~finite).sum())} of {int(acting.sum())} rows of an agent that acts: its "
                "observation, state or baseline is not; tables and figures leave them out"
            )
        if not finite.any():
            return tuple(messages)
        unexplained = unexplained_share(self.relative_delta[finite])
        if unexplained > self.tolerance:
            messages.append(not_converged(unexplained, self.tolerance, "raise n_steps"))
        if finite.sum() > 1 and float(np.ptp(self.score[finite])) == 0.0:
            messages.append("the output never varies over these rows")
        return tuple(messages)

    def table(self) -> pd.DataFrame:
        """By agent and lag: the mean over rows of the sum of |values| over features, and its share.

        The last line of an agent, lag None, is the state before the first step. An agent that never acted has no line.
        """
        lines = []
        for k, agent in enumerate(self.agents):
            acting = self._finite[:, k]
            if not acting.any():
                continue
            by_lag = np.abs(self.values[acting, k]).sum(-1).mean(0)
            sizes = [*by_lag, np.abs(self.state_values[acting, k]).mean()]
            for lag, size in zip([*range(self.lookback + 1), None], sizes):
                lines.append({"agent": agent, "lag": lag, "mean_abs": size, "share": size / sum(sizes)})
        return pd.DataFrame(lines)

    def to_json(self) -> dict[str, Any]:
        names = ("group", "to", "target", "units", "n_steps", "baseline_name", "rows", "given", "warnings")
        return self._selected_json(*names, lags=self.table().to_dict("records"), **self.origin)

    @property
    def verdict(self) -> str:
        table = self.table()
        n_episodes = len(np.unique(self.episode))
        if table.empty:
            return f"No agent of {self.group} acts at the explained steps; {n_episodes} episodes."
        shares = table.fillna({"lag": -1}).groupby("lag")["share"].mean()
        now, state = shares.get(0, 0.0), shares.get(-1, 0.0)
        shown = f"to this step's observation by {now:.0%}, to the {self.lookback} before it by {1 - now - state:.0%}"
        return (
            f"The {self.target} of {', '.join(table['agent'].unique())} is attributed {shown} and to the state before "
            f"these by {state:.0%} (baseline: {self.baseline_name}); {self._control}; {len(self.score)} steps of "
            f"{n_episodes} episodes; an attribution is no proof of use."
        )

    @property
    def _control(self) -> str:
        """How far the values add up to the output."""
        finite = self._finite
        if not finite.any():
            return "nothing is finite"
        return f"at 95% of the steps all but {unexplained_share(self.relative_delta[finite]):.1%} adds up"

    def _repr_table(self) -> pd.DataFrame:
        return self.table()

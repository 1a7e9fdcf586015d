"""The result of an influence analysis: a matrix of agents with intervals over episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, few_episodes_warning, grid_table, mean_of_finite
from marlnb.analysis.stats.bootstrap import bootstrap_weights, percentile_interval
from marlnb.display.formatting import format_interval
from marlnb.errors import AnalysisError

N_BOOTSTRAP = 2000


@dataclass(frozen=True, eq=False, repr=False)
class Influence(Result):
    """How much of each agent's output comes from each other agent.

    Attributes:
        values: `[agent, source]` in `units`, the mean over episodes of their means over steps. The diagonal is what an
            agent's output owes to features that are not about other agents; NaN where it was not computed. 0 is exact:
            nothing of the source reaches the agent.
        low: `[agent, source]`, lower end of its 95% bootstrap interval over episodes.
        high: `[agent, source]`, upper end of that interval.
        agents: the influenced agents.
        sources: the agents that influence them.
        through: observation, communication or critic.
        measure: what a value is, in words.
        units: of the values.
        n_episodes: number of episodes.
        messages: reasons not to trust the result that came up while it was computed.
        origin: what made the recording.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    agents: tuple[str, ...]
    sources: tuple[str, ...]
    through: str
    measure: str
    units: str
    n_episodes: int
    messages: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust the result."""
        return (*self.messages, *few_episodes_warning(self.n_episodes))

    def of(self, agent: str, source: str) -> tuple[float, float, float]:
        """Value, low and high of one pair.

        Raises:
            AnalysisError: unknown agent.
        """
        if agent not in self.agents or source not in self.sources:
            raise AnalysisError(
                f"no influence of {source!r} on {agent!r}; agents: {self.agents}, sources: {self.sources}"
            )
        cell = self.agents.index(agent), self.sources.index(source)
        return float(self.values[cell]), float(self.low[cell]), float(self.high[cell])

    def table(self) -> pd.DataFrame:
        """One row for each pair: agent, source, value, low, high."""
        values = {"value": self.values, "low": self.low, "high": self.high}
        return grid_table({"agent": self.agents}, {"source": self.sources}, values)

    def to_json(self) -> dict[str, Any]:
        names = ("through", "measure", "units", "n_episodes", "warnings")
        return self._selected_json(*names, pairs=self.table().to_dict("records"), **self.origin)

    def _html_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=pd.Index(self.agents, name="agent"), columns=list(self.sources))

    @property
    def verdict(self) -> str:
        pairs = self.table().query("agent != source and value == value").sort_values("value", ascending=False)
        if pairs.empty:
            return f"No influence between agents through {self.through} could be measured; {self.n_episodes} episodes."
        largest = pairs.iloc[0]
        control = {
            "communication": "whole messages are exchanged between episodes, which is causal for that step; several "
            "sources together were not tested",
            "observation": "an attribution, which is no proof of use",
            "critic": "an attribution, which is no proof of use",
        }.get(self.through, self.through)
        end = f"; {control}; {self.n_episodes} episodes."
        if largest.value == 0:
            exact = f"exactly 0 in {len(pairs)} of {len(pairs)} pairs ({self.measure})"
            return f"No influence between agents through {self.through}: {exact}{end}"
        value = f"{format_interval(largest.value, largest.low, largest.high, 2)} {self.units}"
        n_exact = int((pairs["value"] == 0).sum())
        exact = f"; {n_exact} {'is' if n_exact == 1 else 'are'} exactly 0" if n_exact else ""
        return (
            f"Of {len(pairs)} pairs of agents, {largest.source} influences {largest.agent} most through "
            f"{self.through}: {value} ({self.measure}){exact}{end}"
        )

    def _repr_table(self) -> pd.DataFrame:
        return self._html_table()


def over_episodes(
    by_row: np.ndarray, episode: np.ndarray, seed: int, changes_of_others: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Mean over episodes of the means over their rows, with a 95% bootstrap interval.

    Whole episodes are drawn with replacement, never single steps, since the steps of an episode resemble each other.

    Args:
        by_row: `[row, ...]`; NaN does not count.
        episode: `[row]`.
        changes_of_others: `[row, ...]`, how each row changes the values of other episodes' rows, summed over these.
            Their mean is about 0; they are part of what an episode contributes to the interval.
    Returns:
        mean `[...]`, low `[...]`, high `[...]` and the number of episodes.
    """
    numbers = np.unique(episode)
    means = np.stack([mean_of_finite(by_row[episode == number].astype(np.float64)) for number in numbers])
    known = np.isfinite(means)
    drawn = means
    if changes_of_others is not None:
        n_rows = np.stack([np.isfinite(by_row[episode == number]).sum(0) for number in numbers])
        changes = np.stack([changes_of_others[episode == number].sum(0) for number in numbers]) / np.maximum(n_rows, 1)
        drawn = means + changes - mean_of_finite(np.where(known, changes, np.nan))
    weights = bootstrap_weights(len(numbers), N_BOOTSTRAP, np.random.default_rng(seed))
    with np.errstate(invalid="ignore"):
        samples = np.tensordot(weights, np.where(known, drawn, 0), 1) / np.tensordot(weights, known, 1)
    return mean_of_finite(means), *percentile_interval(samples), len(numbers)

"""The result of an influence analysis: a matrix of agents with intervals over episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import Result, few_episodes_warning, grid_table, strict_json
from marlnb.errors import AnalysisError

N_BOOTSTRAP = 2000


@dataclass(frozen=True, eq=False)
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
        names = ("through", "measure", "units", "n_episodes")
        content = {name: getattr(self, name) for name in names}
        pairs = self.table().to_dict("records")
        return dict(strict_json({**content, "pairs": pairs, "warnings": self.warnings, **self.origin}))

    def _html_table(self) -> pd.DataFrame:
        return pd.DataFrame(self.values, index=pd.Index(self.agents, name="agent"), columns=list(self.sources))

    def __repr__(self) -> str:
        return (
            f"Influence(through {self.through}: {self.measure}, {len(self.agents)} agents x {len(self.sources)} "
            f"sources, {self.n_episodes} episodes, {self.units}{self.remarks})"
        )


def over_episodes(by_row: np.ndarray, episode: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Mean over episodes of the means over their rows, with a 95% bootstrap interval.

    Whole episodes are drawn with replacement, never single steps, since the steps of an episode resemble each other.

    Args:
        by_row: `[row, ...]`; NaN does not count.
        episode: `[row]`.
    Returns:
        mean `[...]`, low `[...]`, high `[...]` and the number of episodes.
    """
    numbers = np.unique(episode)
    means = np.full((len(numbers), *by_row.shape[1:]), np.nan)
    for k, number in enumerate(numbers):
        rows = by_row[episode == number].astype(np.float64)
        known = np.isfinite(rows)
        count = known.sum(0)
        means[k] = np.where(count > 0, np.where(known, rows, 0).sum(0) / np.maximum(count, 1), np.nan)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), N_BOOTSTRAP)
    flat = means.reshape(len(numbers), -1)
    known = np.isfinite(flat)
    values = np.where(known, flat, 0)
    count = weights @ known
    samples = np.where(count > 0, weights @ values / np.maximum(count, 1), np.nan)
    mean = np.where(known.any(0), values.sum(0) / np.maximum(known.sum(0), 1), np.nan)
    low, high = np.full((2, samples.shape[1]), np.nan)
    some = np.isfinite(samples).any(0)
    if some.any():
        low[some], high[some] = np.nanpercentile(samples[:, some], [2.5, 97.5], axis=0)
    shape = means.shape[1:]
    return mean.reshape(shape), low.reshape(shape), high.reshape(shape), len(numbers)

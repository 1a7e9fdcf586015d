"""The answer to who influences whom: a matrix agent by agent, with intervals over episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.plain_json import plain_json
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError

FEW_EPISODES = 20
REPETITIONS = 2000


@dataclass(frozen=True, eq=False)
class Influence:
    """How much each agent's output owes to each agent.

    Attributes:
        values, low, high: `[agent, source]` in `units`: the mean over episodes of their means over steps, and its 95%
            bootstrap interval over episodes. The diagonal is what an agent owes to what it sees of anything else than
            other agents; NaN where it was not asked. 0 is exact: nothing of the source reaches the agent.
        through: observation, communication or critic; measure: what a value is, in words.
        notes: why it must not be trusted.
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
    notes: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why this must not be trusted; empty where nothing is known against it."""
        found = list(self.notes)
        if self.n_episodes < FEW_EPISODES:
            found.append(f"only {self.n_episodes} episodes: intervals over fewer than {FEW_EPISODES} are too narrow")
        return tuple(found)

    def of(self, agent: str, source: str) -> tuple[float, float, float]:
        """Value, low and high of one pair.

        Raises:
            AnalysisError: no such agent.
        """
        if agent not in self.agents or source not in self.sources:
            raise AnalysisError(f"no pair ({agent!r}, {source!r}); agents {self.agents}, sources {self.sources}")
        at = self.agents.index(agent), self.sources.index(source)
        return float(self.values[at]), float(self.low[at]), float(self.high[at])

    def table(self) -> pd.DataFrame:
        """One line a pair: agent, source, value, low, high."""
        return pd.DataFrame(
            {
                "agent": np.repeat(self.agents, len(self.sources)),
                "source": list(self.sources) * len(self.agents),
                "value": self.values.ravel(),
                "low": self.low.ravel(),
                "high": self.high.ravel(),
            }
        )

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("through", "measure", "units", "n_episodes")}
        pairs = self.table().to_dict("records")
        found: dict[str, Any] = plain_json({**told, "pairs": pairs, "warnings": list(self.warnings), **self.origin})
        return found

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        return (
            f"Influence(through {self.through}: {self.measure}, {len(self.agents)} agents x {len(self.sources)} "
            f"sources, {self.n_episodes} episodes, {self.units}{flag})"
        )

    def _repr_html_(self) -> str:
        matrix = pd.DataFrame(self.values, index=pd.Index(self.agents, name="agent"), columns=list(self.sources))
        return shown_as_html(repr(self), self.warnings, matrix, index=True)


def over_episodes(by_row: np.ndarray, episode: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Mean over episodes, low and high `[...]` of numbers `[row, ...]`; rows of NaN do not count.

    Episodes are drawn anew with replacement, never single steps: those of one episode resemble each other.
    """
    numbers = np.unique(episode)
    means = np.full((len(numbers), *by_row.shape[1:]), np.nan)
    for place, number in enumerate(numbers):
        rows = by_row[episode == number].astype(np.float64)
        known = np.isfinite(rows)
        count = known.sum(0)
        means[place] = np.where(count > 0, np.where(known, rows, 0).sum(0) / np.maximum(count, 1), np.nan)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), REPETITIONS)
    flat = means.reshape(len(numbers), -1)
    known = np.isfinite(flat)
    total = weights @ np.where(known, flat, 0)
    count = weights @ known
    drawn = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    every = np.where(known.any(0), np.where(known, flat, 0).sum(0) / np.maximum(known.sum(0), 1), np.nan)
    low, high = (_percentile(drawn, q) for q in (2.5, 97.5))
    shape = means.shape[1:]
    return every.reshape(shape), low.reshape(shape), high.reshape(shape), len(numbers)


def _percentile(drawn: np.ndarray, q: float) -> np.ndarray:
    """Along the first axis, over what is known; NaN where nothing is."""
    found = np.full(drawn.shape[1], np.nan)
    some = np.isfinite(drawn).any(0)
    if some.any():
        found[some] = np.nanpercentile(drawn[:, some], q, axis=0)
    return found

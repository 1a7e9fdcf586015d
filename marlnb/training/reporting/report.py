"""Report: what one iteration of training did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from marlnb.training.shared_return import exploring_returns, scored_returns, shared_return


@dataclass(frozen=True)
class Report:
    """One iteration.

    Attributes:
        iteration: from 1.
        frames: since the run started.
        seconds: of training since the run started, with earlier sessions and without pauses.
        episodes: number of episodes that ended in this iteration.
        returns: by group, the mean return of one agent in those episodes; None if none ended.
        recent_return: mean return of one agent in the latest iterations with 100 episodes in total, where all groups
            share their reward; None before any episode ended, and where groups are rewarded differently.
        length: mean length of those episodes in steps; None if none ended.
        learning: by group, the learner's metrics: losses, entropy, kl, explained_variance and so on.
        evaluation: by group, the mean return of this iteration's evaluation; empty if there was none.
        frames_per_second: of this iteration, without evaluation and checkpoint.
        stepping_s: seconds in the environment.
        acting_s: seconds of choosing actions and storing them.
        learning_s: seconds of learning.
        agent_returns: as `returns`, by agent, for groups of 2 to 32 agents.
        recent_returns: by group, the mean return in the latest iterations with 100 episodes in total.
        agent_steps: steps of single agents since the run started, counted where they acted.
        turn: in a league, of the player whose turn this iteration was: the `round`, how many of its `matches` ended,
            and the mean `outcome` of those against others (1: won, 0: lost). In a population, of the member: the
            `generation`. `learning` is by player or member there. Else empty.
    """

    iteration: int
    frames: int = 0
    seconds: float = 0.0
    episodes: int = 0
    returns: dict[str, float | None] = field(default_factory=dict)
    recent_return: float | None = None
    length: float | None = None
    learning: dict[str, dict[str, float]] = field(default_factory=dict)
    evaluation: dict[str, float] = field(default_factory=dict)
    frames_per_second: float = 0.0
    stepping_s: float = 0.0
    acting_s: float = 0.0
    learning_s: float = 0.0
    agent_returns: dict[str, float | None] = field(default_factory=dict)
    agent_steps: int = 0
    recent_returns: dict[str, float] = field(default_factory=dict)
    turn: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of_row(row: Mapping[str, Any]) -> Report:
        """From a row of a run's metrics, of this or another version: others have more fields or fewer."""
        return Report(**{item.name: row[item.name] for item in fields(Report) if item.name in row})

    @property
    def score(self) -> float | None:
        """Mean return of the evaluation or else of recent training episodes, where all groups share their reward."""
        return shared_return(self.evaluation) if self.evaluation else self.recent_return

    @property
    def scored_returns(self) -> dict[str, float]:
        """`returns` where they are known; by agent where the agents of a single group play against each other.

        Their returns add up to 0, so that the group's mean says nothing.
        """
        return scored_returns(vars(self))

    @property
    def exploring_returns(self) -> dict[str, float]:
        """`recent_returns`, or `scored_returns` where the agents of a single group play against each other."""
        return exploring_returns(vars(self))

    def to_json(self) -> dict[str, Any]:
        """For JSON; numbers that are not finite become None."""
        data: dict[str, Any] = _finite({item.name: getattr(self, item.name) for item in fields(self)})
        return data if self.turn else {key: value for key, value in data.items() if key != "turn"}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

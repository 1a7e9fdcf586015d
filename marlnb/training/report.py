"""Report: what one iteration of training did."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Report:
    """One iteration.

    Attributes:
        iteration: counted from 1.
        frames: collected since the run began.
        seconds: of training since the run began, earlier sessions included, pauses not.
        episodes: that ended in this iteration.
        returns: by group, the mean over those episodes of the return of one agent; None where none ended.
        agent_returns: the same by agent, of the groups that have several agents (and at most 32).
        recent_return: the mean return per agent averaged over the groups, of the newest iterations that make up 100
            episodes; None before any ended.
        length: mean steps of those episodes.
        learning: by group, the learner's metrics: losses, entropy, kl, explained_variance and so on.
        evaluation: by group, the mean return of this iteration's evaluation; empty where there was none.
        frames_per_second: of this iteration, evaluation and checkpoint not counted.
        stepping_s, acting_s, learning_s: its seconds, by what they went into.
    """

    iteration: int
    frames: int
    seconds: float
    episodes: int
    returns: dict[str, float | None]
    recent_return: float | None
    length: float | None
    learning: dict[str, dict[str, float]]
    evaluation: dict[str, float]
    frames_per_second: float
    stepping_s: float
    acting_s: float
    learning_s: float
    agent_returns: dict[str, float | None] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The evaluation's mean return averaged over groups, else that of the newest training episodes."""
        if self.evaluation:
            return sum(self.evaluation.values()) / len(self.evaluation)
        return self.recent_return

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; numbers that are not finite become None."""
        data: dict[str, Any] = _finite(asdict(self))
        return data


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

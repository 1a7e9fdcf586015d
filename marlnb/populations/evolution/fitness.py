"""Fitness: one number from the returns of an evaluation; undiscounted, and of the same episodes for every member."""

from __future__ import annotations

import math
from collections.abc import Sequence

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.policies.evaluation import Evaluation


def score(evaluation: Evaluation, experiment: Experiment) -> float:
    """The mean return of one agent: that of `target_group`, or the one that all groups share.

    Raises:
        ConfigError: the groups, or the agents of a group, are rewarded differently, so that no return is that of all.
    """
    if experiment.target_group is not None:
        return evaluation.return_mean[experiment.target_group]
    try:
        return evaluation.score
    except ConfigError as error:
        groups = " or ".join(f"target_group={name}" for name in evaluation.return_mean)
        raise ConfigError(
            f"evolution needs one fitness, but {error}. Choose whose return it is: {groups}", at="target_group"
        ) from error


def fitness(scores: Sequence[float], window: int) -> float:
    """The mean of the last `window` scores; -inf if the last one is not finite."""
    last = scores[-window:]
    return sum(last) / len(last) if last and all(map(math.isfinite, last)) else -math.inf

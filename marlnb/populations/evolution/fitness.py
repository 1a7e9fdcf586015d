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
        competing = evaluation.table.zero_sum_groups
        groups = [name for name in evaluation.return_mean if name not in competing]
        if not groups:
            raise _no_return(competing[0]) from error
        choices = " or ".join(f"target_group={name}" for name in groups)
        raise ConfigError(
            f"evolution needs one fitness, but {error}. Choose whose return it is: {choices}; or, where the groups "
            "compete, evolution.fitness=win_rate or evolution.fitness=nash",
            at="target_group",
        ) from error


def check_score(evaluation: Evaluation, experiment: Experiment) -> None:
    """Checks from episodes with random actions whether a return can be the fitness.

    Raises:
        ConfigError: as `score`; or the agents of `target_group` play against each other.
    """
    if experiment.target_group in evaluation.table.zero_sum_groups:
        raise _no_return(experiment.target_group)
    score(evaluation, experiment)


def _no_return(group: str) -> ConfigError:
    return ConfigError(
        f"evolution.fitness=return needs the return of one agent, but the agents of group {group!r} play against each "
        "other: their returns add up to 0 in every episode, so every member would be equally fit. Use "
        "evolution.fitness=win_rate with evolution.references=[random], or evolution.fitness=nash",
        at="evolution.fitness",
    )


def fitness(scores: Sequence[float], window: int) -> float:
    """The mean of the last `window` scores; -inf if the last one is not finite."""
    last = scores[-window:]
    return sum(last) / len(last) if last and all(map(math.isfinite, last)) else -math.inf

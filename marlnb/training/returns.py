"""What the groups of a training run earn: in its evaluations, or in recent episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marlnb.errors import ConfigError, shown
from marlnb.experiment import Experiment
from marlnb.training.collect.episode_statistics import MIN_EPISODES, EpisodeStatistics
from marlnb.training.limits import return_of_target
from marlnb.training.loop import RecentEpisodes
from marlnb.training.shared_return import is_zero_sum


@dataclass(frozen=True)
class LastEvaluation:
    """The last evaluation of a training run.

    Attributes:
        iteration: after which it was; 0: there was none.
        returns: by group, the mean return.
    """

    iteration: int = 0
    returns: Mapping[str, float] = field(default_factory=dict)


class TrainingReturns:
    """The returns that a training run is judged by; part of its checkpoints.

    Args:
        experiment: what is trained.

    Attributes:
        evaluation: the last one.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self.evaluation = LastEvaluation()
        self._zero_sum_episodes: dict[str, int] = {}  # by group, while the agents may play against each other
        self._sharing: set[str] = set()  # groups with an episode whose returns do not add up to 0

    def add(self, episodes: EpisodeStatistics) -> None:
        """Looks whether agents play against each other.

        Raises:
            ConfigError: they do in all of at least MIN_EPISODES episodes, and a target is set for their mean return.
        """
        target, group = self._experiment.target_return, self._experiment.target_group
        if target is None:
            return
        compared = {name: x for name, x in episodes.returns.items() if group in (None, name)}
        for name, values in compared.items():  # [episode, agent]
            if is_zero_sum(values.sum(axis=1), np.abs(values).max(initial=0)):
                self._zero_sum_episodes[name] = self._zero_sum_episodes.get(name, 0) + len(values)
            elif values.any():
                self._sharing.add(name)
            if name in self._sharing:
                self._zero_sum_episodes.pop(name, None)
            elif self._zero_sum_episodes.get(name, 0) >= MIN_EPISODES:
                raise ConfigError(
                    f"target_return={target:g} cannot end this training run: the agents of group {name!r} play against "
                    "each other. Their returns add up to 0 in every episode, so the mean that is compared is always "
                    "0. Leave out target_return, and end with frames, max_iterations, max_minutes or "
                    "max_agent_steps; or give each side a group: groups.GROUP=[AGENT, ...] and target_group=GROUP",
                    at="target_return",
                )

    @property
    def are_evaluated(self) -> bool:
        """Whether evaluations, not exploring episodes, say how good the policies are during the training."""
        return bool(self._experiment.evaluate_every) or self._experiment.evolution is not None

    def latest(self, episodes: RecentEpisodes) -> Mapping[str, float]:
        """By group, the mean return of one agent, of the last evaluation or else of recent episodes."""
        return self.evaluation.returns if self.are_evaluated else episodes.recent_returns

    def after(self, iteration: int, episodes: RecentEpisodes) -> Mapping[str, float]:
        """The latest, if they are of the weights after this iteration; empty if other weights were evaluated."""
        is_of_them = not self.are_evaluated or self.evaluation.iteration == iteration
        return self.latest(episodes) if is_of_them else {}

    def reached_target(self, episodes: RecentEpisodes) -> float | None:
        """The latest return that reaches the experiment's target; None if it does not, after few episodes, and
        where all of few episodes were of agents that play against each other.

        Raises:
            ConfigError: the groups are rewarded differently, and `target_group` names none of them.
        """
        target, reached = self._experiment.target_return, return_of_target(self._experiment, self.latest(episodes))
        if target is None or reached is None or reached < target or self._zero_sum_episodes:
            return None
        are_enough = self.are_evaluated or episodes.recent_episodes >= MIN_EPISODES
        return reached if are_enough else None

    def state_dict(self) -> dict[str, Any]:
        return {
            "evaluation_iteration": self.evaluation.iteration,
            "evaluation_returns": dict(self.evaluation.returns),
            "zero_sum_episodes": dict(self._zero_sum_episodes),
            "sharing_groups": sorted(self._sharing),
        }

    def load_state_dict(self, state: Mapping[str, Any], groups: Sequence[str]) -> None:
        """Restores what a checkpoint has; those of earlier versions have less.

        Raises:
            KeyError, TypeError, ValueError: it is not a checkpoint of a training run.
        """
        self.evaluation = _saved_evaluation(state, groups)
        counts = dict(state.get("zero_sum_episodes", {}))
        self._zero_sum_episodes = {name: int(count) for name, count in counts.items()}
        self._sharing = set(state.get("sharing_groups", ()))


def _saved_evaluation(state: Mapping[str, Any], groups: Sequence[str]) -> LastEvaluation:
    """The last evaluation. Earlier versions saved its mean over groups, of use where there is one, or no iteration."""
    if "evaluation_returns" in state:
        returns = dict(state["evaluation_returns"])
        if not all(isinstance(value, int | float) for value in returns.values()):
            raise ValueError(f"evaluation_returns must be numbers; got {shown(returns)}")
        return LastEvaluation(int(state.get("evaluation_iteration", 0)), returns)
    score = state["evaluation_score"]
    return LastEvaluation(returns={} if score is None or len(groups) > 1 else {groups[0]: score})

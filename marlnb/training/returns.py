"""What the groups of a training earn: in its evaluations, or in recent episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marlnb.experiment import Experiment
from marlnb.training.collect.episode_statistics import MIN_EPISODES
from marlnb.training.limits import return_of_target
from marlnb.training.loop import RecentEpisodes


@dataclass(frozen=True)
class LastEvaluation:
    """The last evaluation of a training.

    Attributes:
        iteration: after which it was; 0: there was none.
        returns: by group, the mean return.
    """

    iteration: int = 0
    returns: Mapping[str, float] = field(default_factory=dict)


class TrainingReturns:
    """The returns that a training is judged by.

    Args:
        experiment: what is trained.

    Attributes:
        evaluation: the last one.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self.evaluation = LastEvaluation()

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
        """The latest return that reaches the experiment's target; None if it does not, and after few episodes.

        Raises:
            ConfigError: the groups are rewarded differently, and `target_group` names none of them.
        """
        target, reached = self._experiment.target_return, return_of_target(self._experiment, self.latest(episodes))
        if target is None or reached is None or reached < target:
            return None
        are_enough = self.are_evaluated or episodes.recent_episodes >= MIN_EPISODES
        return reached if are_enough else None

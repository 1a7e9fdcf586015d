"""Evaluator: the evaluations during a training, always of the same episodes, in separate environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from marlnb.envs.external.interface import evaluation_config, interrupt, is_served, publish
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import Step, VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.training.collect.episodes import EpisodeTable, TimeStep
from marlnb.training.collect.seeds import derive_seed
from marlnb.training.policies.evaluation import Evaluation, score_policies, summarise

MIN_BATCHED_ENVS = 100
"""Batched environments of an evaluation, also where the training has fewer: more of them cost little more time."""


class EvaluationInterrupted(Exception):
    """The training was asked to stop during an evaluation that other processes take part in."""


class StopWhenInterrupted:
    """A callback of `play` that raises EvaluationInterrupted before the next step once `interrupted` is True."""

    interrupted = False

    def before_step(self, time_step: TimeStep) -> None:
        if self.interrupted:
            raise EvaluationInterrupted("the evaluation was interrupted")

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        pass


class Evaluator:
    """Plays an experiment's evaluation episodes. The environment is built at the first evaluation.

    Args:
        experiment: what is trained.
        folder: where external simulators find the address of the evaluations.
    """

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment, self.folder = experiment, folder
        self._env: VectorEnv | None = None
        self._stop = StopWhenInterrupted()

    def is_due(self, iteration: int, is_last: bool, target_reached: bool) -> bool:
        """Whether the policies are evaluated after this iteration."""
        if every := self.experiment.evaluate_every:
            return is_last or iteration % every == 0
        # where it takes no time, so that every run has a greedy score besides that of its exploring episodes
        return bool(self.experiment.env.facts.batched) and (is_last or target_reached)

    def evaluate(self, policies: Mapping[str, Policy]) -> tuple[EpisodeTable, Evaluation]:
        """The episodes and their summary. Each agent takes its most likely action.

        Raises:
            EvaluationInterrupted: after `interrupt`, in an environment that other processes take part in.
        """
        experiment = self.experiment
        episodes, seed = experiment.evaluation_episodes, derive_seed(experiment.seed, "evaluation")
        if self._env is None:
            n_envs = max(experiment.n_envs, MIN_BATCHED_ENVS) if experiment.env.facts.batched else experiment.n_envs
            n_envs = min(n_envs, episodes)
            config = evaluation_config(experiment.env)
            self._env = build_env(experiment, n_envs, device=experiment.device, env=config)
            publish(self._env, self.folder)
        stop = self._stop if is_served(self._env) else None
        table = score_policies(self._env, policies, episodes=episodes, seed=seed, explore=False, callback=stop)
        evaluation = summarise(
            table, env=table.spec.name, policy="run", checkpoint=None, seed=seed, explore=False, seconds=0.0
        )
        return table, evaluation

    def interrupt(self) -> None:
        """Ends the evaluation, and any later one, if other processes take part. Safe to call from a signal handler."""
        self._stop.interrupted = True
        if self._env is not None:
            interrupt(self._env)

    def close(self) -> None:
        """Frees the environment. Safe to call twice."""
        if self._env is not None:
            self._env.close()
            self._env = None

"""Evaluator: the evaluations during a training run, always of the same episodes, in separate environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from marlnb.envs.external.interface import ServedEnvs, evaluation_config, publish_evaluation
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.specs import derive_seed
from marlnb.training.policies.evaluation import Evaluation, score_policies, summarise

MIN_BATCHED_ENVS = 100
"""Batched environments of an evaluation, also where the training has fewer: more of them cost little more time."""


class Evaluator:
    """Plays an experiment's evaluation episodes. The environment is built at the first evaluation.

    Args:
        experiment: what is trained.
        folder: where external simulators find the address of the evaluations.
        served: can end an evaluation that simulators take part in.
    """

    def __init__(self, experiment: Experiment, folder: Path, served: ServedEnvs) -> None:
        self.experiment, self.folder, self._served = experiment, folder, served
        self._env: VectorEnv | None = None

    def is_due(self, iteration: int, is_last: bool, target_reached: bool) -> bool:
        """Whether the policies are evaluated after this iteration."""
        if every := self.experiment.evaluate_every:
            return is_last or iteration % every == 0
        # where it takes no time, so that every run has a greedy score besides that of its exploring episodes
        return bool(self.experiment.env.facts.batched) and (is_last or target_reached)

    def evaluate(self, policies: Mapping[str, Policy], *, episodes: int | None = None) -> Evaluation:
        """The episodes, with a summary. Each agent takes its most likely action.

        Args:
            policies: by group.
            episodes: number of episodes; None: those of the experiment.
        Raises:
            EnvInterrupted: it was ended.
        """
        experiment, seed = self.experiment, derive_seed(self.experiment.seed, "evaluation")
        if self._env is None:
            n_envs = max(experiment.n_envs, MIN_BATCHED_ENVS) if experiment.env.facts.batched else experiment.n_envs
            n_envs = min(n_envs, experiment.evaluation_episodes)
            config = evaluation_config(experiment.env)
            self._env = build_env(experiment, n_envs, device=experiment.device, env=config)
            self._served.add(self._env)
            publish_evaluation(self._env, self.folder)
        episodes = episodes or experiment.evaluation_episodes
        table = score_policies(self._env, policies, episodes=episodes, seed=seed, explore=False)
        name = table.spec.name
        return summarise(table, env=name, policy="run", checkpoint=None, seed=seed, explore=False, seconds=0.0)

    def close(self) -> None:
        """Frees the environment. Safe to call twice."""
        if self._env is not None:
            self._env.close()
            self._env = None

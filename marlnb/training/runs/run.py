"""Run: a folder from which a training run is watched, resumed, evaluated and explained. Nothing else is needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from marlnb.config import EnvConfig
from marlnb.envs.external.interface import evaluation_config
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import RunError
from marlnb.specs import GroupSpec
from marlnb.training.learners import build_learners, checkpoint_experiment, load_learners
from marlnb.training.population_support import population_support
from marlnb.training.runs.run_folder import RunFolder, Which

if TYPE_CHECKING:
    from marlnb.models.policies.policy import Policy


class Origin(NamedTuple):
    """Which weights: the iteration of training that made them (0 if unknown) and their hash."""

    iteration: int
    sha256: str


class Run(RunFolder):
    """One training's folder, with its policies and environments (a `PolicySource`)."""

    @property
    def n_envs(self) -> int:
        """Environments that the training steps at once."""
        return self.experiment.n_envs

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        """Its environment, or `env` with the agents in the same groups; the caller closes it."""
        return build_env(self.experiment, n_envs, device=device, env=env or evaluation_config(self.experiment.env))

    @property
    def league(self) -> Any:
        """The players, snapshots, matches and ratings of its league: a `marlnb.populations.run_league.RunLeague`.

        Raises:
            RunError: it was trained without a league.
        """
        if self.experiment.league is None:
            raise RunError(f"{self.shown_path} has no league: it was trained without league=")
        return population_support().open_league(self)

    @property
    def population(self) -> Any:
        """Members, lineage and winner of its evolution: a `marlnb.populations.run_population.RunPopulation`.

        Raises:
            RunError: it was trained without evolution.
        """
        if self.experiment.evolution is None:
            raise RunError(f"{self.shown_path} has no population: it was trained without evolution=")
        return population_support().open_population(self)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        """The policy of each group with the weights of a checkpoint, ready to act.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
            TrustError: the folder names an algorithm or a network that the user does not trust.
        """
        state = self.checkpoint(checkpoint).load()
        learners = build_learners(checkpoint_experiment(self.experiment, self.spec, state), self.spec, device)
        load_learners(learners, state.get("learners", {}))
        return {name: learner.policy.eval() for name, learner in learners.items()}

    def origin(self, checkpoint: Which = "last") -> Origin:
        """Iteration and hash of a checkpoint."""
        opened = self.checkpoint(checkpoint)
        return Origin(opened.iteration, opened.sha256)

    def policy_index(self, group: GroupSpec) -> list[int]:
        """For each agent of a group the number of its network, from 0."""
        models = [self.experiment.models.get(agent, self.experiment.actor_of(group.name)) for agent in group.agents]
        keys = [(model, -1 if model.share_parameters else index) for index, model in enumerate(models)]
        distinct = [key for index, key in enumerate(keys) if key not in keys[:index]]
        return [distinct.index(key) for key in keys]


def opened_run(run: Run | str | os.PathLike[str], *, trust: bool = False) -> Run:
    """The run itself, or the one in a folder.

    Args:
        trust: allow the code that its folder names (`Run.trust`).
    Raises:
        RunError: the folder is not a run.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    if trust:
        opened.trust()
    return opened

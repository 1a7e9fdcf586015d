"""An experiment's learners, one per group. Their initial weights depend on the experiment's seed and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from marlnb.algorithms.configs.off_policy import QActorCriticConfig
from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.algorithms.learner import Learner
from marlnb.algorithms.scripted import FrozenLearner
from marlnb.config import LearnerContext
from marlnb.errors import CheckpointError, ConfigError, RunError, unknown
from marlnb.experiment import Experiment
from marlnb.models.networks.by_agent import by_agent
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.scripted import FrozenPolicy
from marlnb.specs import EnvSpec, GroupSpec, derive_seed
from marlnb.training.collect.seeds import GENERATORS_LOCK
from marlnb.training.compilation import COMPILED_FROM
from marlnb.training.policies.compatibility import check_group_fit
from marlnb.training.population_support import population_support
from marlnb.training.runs.run_folder import RunFolder

_frozen: ContextVar[tuple[tuple[Path, str], ...]] = ContextVar("_frozen", default=())  # being built, run and group
# of a state that belongs to something else
STATE_ERRORS = (RuntimeError, KeyError, ValueError, TypeError, AttributeError)


def build_learners(experiment: Experiment, spec: EnvSpec, device: str | None = None) -> dict[str, Learner]:
    """A Learner for each group of `spec`. torch's global generator is left as it was.

    A frozen group has its weights unless the other run's checkpoint cannot be read: then they must be loaded before it
    acts (`check_frozen_weights`).

    Raises:
        ConfigError: a group or an agent that the environment does not have, or a combination that cannot learn.
        RunError: the run of a frozen group cannot be read.
        TrustError: the experiment names an algorithm or a network whose code the user does not trust.
    """
    experiment = experiment.loaded(env=False)
    in_league = experiment.league is not None
    if in_league:  # the first player of each group
        experiment = population_support().learners_experiment(experiment, spec)
    for name in experiment.algorithms:
        spec.group(name)
    for part, table in (("models", experiment.models), ("critics", experiment.critics)):
        for name in table:
            if name not in (*spec.group_names, *spec.agents):
                what = unknown(f"group or agent of {spec.name}", name, (*spec.group_names, *spec.agents))
                raise ConfigError(f"{part}.{name}: {what}", at=part)
    learners = {g.name: build_learner(experiment, spec, g, device, in_league=in_league) for g in spec.groups}
    for learner in learners.values():
        learner.bind_learners(learners)
    return learners


def checkpoint_experiment(experiment: Experiment, spec: EnvSpec, state: Mapping[str, Any]) -> Experiment:
    """The experiment of the learners in a run's checkpoint: in a population, that of the fittest member."""
    if experiment.evolution is None:
        return experiment
    return population_support().winner_experiment(experiment, spec, state)


def checkpoint_networks(experiment: Experiment, state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a checkpoint's state that `checkpoint_experiment` reads; empty unless it is of a population."""
    return {} if experiment.evolution is None else population_support().winner_networks(state)


def build_learner(
    experiment: Experiment, spec: EnvSpec, group: GroupSpec, device: str | None = None, *, in_league: bool = False
) -> Learner:
    """The Learner of one group, not yet bound to the others. Raises as `build_learners`.

    Args:
        in_league: who acts for the other groups changes from match to match. Critics that need all next actions then
            read their own group alone.
    """
    device, algorithm = device or experiment.device, experiment.algorithm_of(group.name)
    read = replace(spec, groups=(group,)) if in_league and isinstance(algorithm, QActorCriticConfig) else spec
    if isinstance(algorithm, FrozenConfig):
        return frozen_learner(algorithm, group, spec, device)
    actor = by_agent(group, experiment.actor_of(group.name), experiment.models)
    critic = by_agent(group, experiment.critic_of(group.name), experiment.critics)
    context = LearnerContext(group, read, actor, critic, experiment.n_envs, experiment.rollout_steps, device)
    parsed = torch.device(device)
    cuda_devices = [parsed] if parsed.type == "cuda" else []
    with GENERATORS_LOCK, torch.random.fork_rng(cuda_devices):
        torch.manual_seed(derive_seed(experiment.seed, "learner", group.name))
        try:
            learner = algorithm.build(context)
        except ConfigError as error:
            if repr(group.name) in str(error):
                raise
            where = f"group {group.name!r} of {spec.name}, whose agents observe {group.observation.shape}"
            raise ConfigError(f"{algorithm.name} for {where}: {error}") from error
    learner.policy.eval()  # as evaluations act; the learner's gradient steps alone are in training mode
    if experiment.compile in COMPILED_FROM:
        learner.compile_updates(after=COMPILED_FROM[experiment.compile])
    return learner


def frozen_learner(config: FrozenConfig, group: GroupSpec, spec: EnvSpec, device: str) -> FrozenLearner:
    """The learner of a frozen group, with the policy that `config.run` trained, as it acts for `group` of `spec`.

    Without a checkpoint of that run, the policy has its networks, but no weights until a state is loaded.

    Raises:
        RunError: there is no such run.
        CheckpointError: the checkpoint does not fit its own run.
        ConfigError: the run has no such group, other spaces or agents, or its policy has no network or is itself.
    """
    where = f"frozen for group {group.name!r} of {spec.name}"
    run, trained = _frozen_group(config, group, spec, where)
    experiment = run.experiment.loaded(env=False)

    def build(networks: Mapping[str, Any]) -> Learner:
        own = checkpoint_experiment(experiment, run.spec, networks) if networks else experiment
        with _freezing(run.path, trained.name, where):
            learner = build_learner(own, run.spec, trained, device)
        if not isinstance(learner.policy, ActorPolicy):
            acts_by = f"acts by {own.algorithm_of(trained.name).name!r}, which has no network"
            raise ConfigError(f"{where}: group {trained.name!r} of {run.shown_path} {acts_by}")
        return learner

    try:
        checkpoint = run.checkpoint(config.checkpoint)
        whole = checkpoint.load()
        networks = checkpoint_networks(experiment, whole)
    except CheckpointError as error:
        return FrozenLearner(FrozenPolicy(group, build({}).policy, missing=str(error)), {}, build)
    learner = build(networks)
    try:
        learner.load_state_dict(whole["learners"].get(trained.name, {}))
    except STATE_ERRORS as error:
        raise CheckpointError(f"{where}: {checkpoint.path} does not fit its own run: {error!r}") from error
    return FrozenLearner(FrozenPolicy(group, learner.policy), networks, build)


def _frozen_group(config: FrozenConfig, group: GroupSpec, spec: EnvSpec, where: str) -> tuple[RunFolder, GroupSpec]:
    """The run that a group is frozen from, and the group there. Raises as `frozen_learner`."""
    if not config.run:
        raise ConfigError(f"{where}: it needs a run, such as algorithms.{group.name}.run=runs/other")
    try:
        run = RunFolder.open(config.run)
        trained = run.spec.group(config.group or group.name)
    except RunError as error:
        raise RunError(f"{where}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}; choose one with algorithms.{group.name}.group=its_group") from error
    try:
        check_group_fit(trained, run.spec.name, group, spec.name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {run.shown_path} does not fit: {error}") from error
    return run, trained


@contextmanager
def _freezing(run: Path, group: str, where: str) -> Iterator[None]:
    """Raises ConfigError if the same policy is being built around this block: a run's file may name any run."""
    policy = (run.resolve(), group)
    if policy in _frozen.get():
        raise ConfigError(f"{where}: group {group!r} of {run} is frozen from itself")
    token = _frozen.set((*_frozen.get(), policy))
    try:
        yield
    finally:
        _frozen.reset(token)


def load_learners(learners: Mapping[str, Learner], state: Mapping[str, Any]) -> None:
    """Restores every learner from the part `learners` of a checkpoint.

    Raises:
        CheckpointError: the checkpoint belongs to other groups or other networks.
    """
    if not isinstance(state, Mapping) or set(state) != set(learners):
        groups = sorted(state) if isinstance(state, Mapping) else type(state).__name__
        raise CheckpointError(f"the checkpoint holds learners for {groups}, the experiment has {sorted(learners)}")
    for name, learner in learners.items():
        try:
            learner.load_state_dict(state[name])
        except STATE_ERRORS as error:
            raise CheckpointError(f"the checkpoint does not fit the learner of {name!r}: {error}") from error

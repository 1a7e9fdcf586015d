"""The policy of a frozen group, read from the run that trained it."""

from __future__ import annotations

from marlnb.algorithms.scripted import FrozenConfig
from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.scripted import FrozenPolicy
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.learners import build_learner
from marlnb.training.policies.compatibility import check_group_fit
from marlnb.training.runs.run import Run


def frozen_policy(config: FrozenConfig, group: GroupSpec, spec: EnvSpec, device: str) -> FrozenPolicy:
    """The policy that `config.run` trained for a group, as it acts for `group` of `spec`.

    Raises:
        RunError: there is no such run. CheckpointError: no such checkpoint, or it is damaged.
        ConfigError: it has no such group, other spaces or agents, or what it learnt has no network.
    """
    where = f"frozen for group {group.name!r} of {spec.name}"
    if not config.run:
        raise ConfigError(f"{where}: say which run, as algorithms.{group.name}.run=runs/other")
    try:
        run = Run.open(config.run)
        trained = run.spec.group(config.group or group.name)
    except RunError as error:
        raise RunError(f"{where}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}; say which, as algorithms.{group.name}.group=its_group") from error
    try:
        check_group_fit(trained, run.spec.name, group, spec.name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {run.path} does not fit: {error}") from error
    checkpoint = run.checkpoint(config.checkpoint)
    learner = build_learner(run.experiment, run.spec, trained, device)
    state = checkpoint.load()["learners"].get(trained.name, {})
    try:
        learner.load_state_dict(state)
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{where}: {checkpoint.path} does not fit its own run: {error!r}") from error
    if not isinstance(learner.policy, ActorPolicy):
        theirs = run.experiment.algorithm_of(trained.name).name
        raise ConfigError(f"{where}: group {trained.name!r} of {run.path} acts by {theirs!r}, which has no network")
    return FrozenPolicy(group, learner.policy)

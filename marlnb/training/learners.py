"""An experiment's learners, one a group, with weights that depend on the experiment's seed and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from marlnb.algorithms.learner import Learner
from marlnb.algorithms.scripted import FixedPolicyLearner, FrozenConfig
from marlnb.config import LearnerContext
from marlnb.errors import CheckpointError, ConfigError, unknown
from marlnb.experiment import Experiment
from marlnb.models.networks.by_agent import by_agent
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.collect.seeds import GLOBAL_GENERATORS, derive_seed


def build_learners(experiment: Experiment, spec: EnvSpec, device: str | None = None) -> dict[str, Learner]:
    """A Learner for each group of `spec`; torch's global generator is left as it was.

    Raises:
        ConfigError: a group or an agent that the environment does not have, or a combination that cannot learn.
        RunError: the run of a frozen group cannot be read.
    """
    for name in experiment.algorithms:
        spec.group(name)
    for part, table in (("models", experiment.models), ("critics", experiment.critics)):
        for name in table:
            if name not in (*spec.group_names, *spec.agents):
                what = f"group or agent of {spec.name}, as {part}.{spec.group_names[0]},"
                raise ConfigError(unknown(what, name, (*spec.group_names, *spec.agents)))
    learners = {group.name: build_learner(experiment, spec, group, device) for group in spec.groups}
    for learner in learners.values():
        learner.bind_learners(learners)
    return learners


def build_learner(experiment: Experiment, spec: EnvSpec, group: GroupSpec, device: str | None = None) -> Learner:
    """The Learner of one group, which has met no other; raises as `build_learners`."""
    device, algorithm = device or experiment.device, experiment.algorithm_of(group.name)
    if isinstance(algorithm, FrozenConfig):
        from marlnb.training.frozen import frozen_policy  # reads runs, which build learners

        return FixedPolicyLearner(frozen_policy(algorithm, group, spec, device))
    actor = by_agent(group, experiment.actor_of(group.name), experiment.models)
    critic = by_agent(group, experiment.critic_of(group.name), experiment.critics)
    context = LearnerContext(group, spec, actor, critic, experiment.n_envs, experiment.rollout_steps, device)
    with GLOBAL_GENERATORS, torch.random.fork_rng(_cuda_devices(device)):
        torch.manual_seed(derive_seed(experiment.seed, "learner", group.name))
        try:
            return algorithm.build(context)
        except ConfigError as error:
            if repr(group.name) in str(error):
                raise
            seen = f"group {group.name!r} of {spec.name}, whose agents observe {group.observation.shape}"
            raise ConfigError(f"{algorithm.name} for {seen}: {error}") from error


def load_learners(learners: Mapping[str, Learner], state: Mapping[str, Any]) -> None:
    """Restores every learner from a checkpoint's part `learners`.

    Raises:
        CheckpointError: the checkpoint is of other groups or other networks.
    """
    if not isinstance(state, Mapping) or set(state) != set(learners):
        found = sorted(state) if isinstance(state, Mapping) else type(state).__name__
        raise CheckpointError(f"the checkpoint holds learners for {found}, the experiment has {sorted(learners)}")
    for name, learner in learners.items():
        try:
            learner.load_state_dict(state[name])
        except (RuntimeError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"the checkpoint does not fit the learner of {name!r}: {error}") from error


def check_length(experiment: Experiment, spec: EnvSpec) -> None:
    """Raises ConfigError when a group that is to learn would not begin to before the training has ended."""
    trained = experiment.iterations * experiment.iteration_frames
    for group in spec.group_names:
        algorithm = experiment.algorithm_of(group)
        if algorithm.warmup_frames > trained:
            part = f"algorithms.{group}" if group in experiment.algorithms else "algorithm"
            raise ConfigError(
                f"{algorithm.name} for group {group!r} would learn nothing: it acts at random and only remembers for "
                f"the first {algorithm.warmup_frames:,} frames ({part}.learning_starts), and this training has "
                f"{trained:,} (frames={experiment.frames}). Give more frames, or {part}.learning_starts=0 to "
                f"{trained // 2}; a group that is meant to act at random: algorithms.{group}=random"
            )


def check_device(device: str) -> torch.device:
    """Raises ConfigError when `device` is none that this machine has."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"no device {device!r}; valid: {', '.join(_devices())}") from error
    if found.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r} cannot be trained on; valid: {', '.join(_devices())}")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {device!r} was asked for; torch finds {torch.cuda.device_count()} CUDA devices here")
    return found


def _devices() -> list[str]:
    """Those of this machine."""
    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]


def _cuda_devices(device: str) -> list[torch.device]:
    found = torch.device(device)
    return [found] if found.type == "cuda" else []

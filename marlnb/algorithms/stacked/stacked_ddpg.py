"""IDDPG, MADDPG and MATD3 of several training runs at once: one product, one gradient and one step of Adam for all.

Each training samples its own replay buffer; the samples are joined. The gradient step is `DDPGLearner.learn` itself, on
networks that are stacked along a first axis, with losses `[training]`. As in `stacked_ppo`, each learns what it would
by itself.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from marlnb.algorithms.configs.ddpg import IDDPGConfig
from marlnb.algorithms.ddpg import DDPGLearner
from marlnb.algorithms.losses import masked_means
from marlnb.algorithms.replay import Sample
from marlnb.algorithms.rollout import Rollout
from marlnb.algorithms.stacked.stacked_adam import StackedAdam, StackedPart
from marlnb.algorithms.stacked.stacked_learner import StackedLearner, check_simultaneous
from marlnb.errors import ConfigError
from marlnb.models.networks.stacking import MAX_ROWS, check_stackable, stack, stack_weights, stacked_views
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.stacked_policy import StackedDeterministicPolicy

# options that may differ: numbers of the gradient step, and those that each learner reads by itself
STEP_OPTIONS = ("lr", "lr_critic", "gamma", "tau", "max_grad_norm", "batch_size")
LEARNER_OPTIONS = ("buffer_frames", "learning_starts", "save_replay", "noise", "noise_final", "noise_frames")


class StackedDDPG:
    """Learns with the learners of several training runs at once.

    The learners stay complete: their weights, targets and Adam's moments become views of the stacked ones. Minibatches
    of more than MAX_ROWS rows are computed by each learner alone. So are those at which only some have enough
    experience to learn from.

    Args:
        learners: of one group of agents, each of another training run.
    Raises:
        ConfigError: they cannot learn together.
    """

    def __init__(self, learners: Sequence[DDPGLearner]) -> None:
        check_ddpg(learners)
        self.learners = list(learners)
        self._stacked, self._parts = _stacked_learner(self.learners)

    def bind(self, others: Mapping[str, StackedLearner]) -> None:
        names = self.learners[0].other_learners
        self._stacked.other_learners = {
            name: other._stacked for name, other in others.items() if name in names and isinstance(other, StackedDDPG)
        }

    def policy(self, generators: Sequence[torch.Generator], rows: slice) -> Policy:
        policies = [learner.policy for learner in self.learners[rows]]
        actor = stack(policies[0].actor, self._parts["actor"].weights_of(rows))
        return StackedDeterministicPolicy(actor, policies, generators[rows])

    def update(self, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        for learner, rollout in zip(self.learners, rollouts, strict=True):
            learner.store(rollout)
        if not self._are_in_step():
            return [learner.learn_from_replay() for learner in self.learners]
        n, self._stacked.steps = self.learners[0].updates_due, self.learners[0].steps
        means = self._stacked.take_steps(n, self._sample)
        for learner in self.learners:
            learner.steps += n
            learner.explore()
        numbers = torch.stack(tuple(means.values()), dim=1).tolist()  # one transfer from the device
        counts = [{"updates": float(n), "replay_frames": float(len(learner.replay))} for learner in self.learners]
        return [{**dict(zip(means, row)), **count} for row, count in zip(numbers, counts)]

    def _are_in_step(self) -> bool:
        """Whether all make the same number of gradient steps now, at small minibatches, with the same networks due."""
        first, n_rows = self.learners[0], max(learner.config.batch_size for learner in self.learners)
        if next(first.policy.parameters()).device.type == "cpu" and n_rows * first.group.n_agents > MAX_ROWS:
            return False
        periods = first.config.actor_every, first.config.target_every or 1
        due = {(each.updates_due, *(each.steps % period for period in periods)) for each in self.learners}
        return len(due) == 1 and first.updates_due > 0

    def _sample(self) -> Sample:
        """`[training, n, ...]`; where batch sizes differ, the rest of a smaller one is of agents that do not act.

        The noise of relaxed discrete actions is then drawn for n frames, so that it differs from a training run alone.
        """
        sizes = [learner.config.batch_size for learner in self.learners]
        replay, n = self.learners[0].replay, max(sizes)
        if all(learner.replay is replay for learner in self.learners):  # one draw takes the same random numbers
            whole = replay.sample(sum(sizes))
            by_training = {key: values.split(sizes) for key, values in whole.items()}
        else:
            samples = [learner.replay.sample(size) for learner, size in zip(self.learners, sizes)]
            by_training = {key: tuple(sample[key] for sample in samples) for key in samples[0]}
        joined = {key: torch.stack([_extended(part, n) for part in parts]) for key, parts in by_training.items()}
        for acting, size in zip(joined[self._stacked.group.name, "acting"], sizes):
            acting[size:] = False
        return joined


def _stacked_learner(learners: Sequence[DDPGLearner]) -> tuple[DDPGLearner, dict[str, StackedPart]]:
    """A copy of the first learner with the networks, optimizers and options of all: its equations are then theirs.

    Returns:
        the learner, and the stacked weights of its networks.
    """
    first, stacked = learners[0], copy.copy(learners[0])
    optimizers = {
        name: StackedAdam(
            [learner.optimizers[name] for learner in learners],
            {part: [getattr(learner.policy, part) for learner in learners] for part in optimizer.parameters},
        )
        for name, optimizer in first.optimizers.items()
    }
    stacked.optimizers = optimizers  # type: ignore[assignment]  # they step as a PartAdam does
    parts = dict(itertools.chain.from_iterable(adam.parts.items() for adam in optimizers.values()))
    weights = {f"{part}.{name}": weight for part in parts for name, weight in parts[part].weights.items()}
    stacked.policy = stack(first.policy, weights)
    targets = {part: stack_weights([learner.targets[part] for learner in learners]) for part in first.targets}
    views = {part: stacked_views(first.targets[part], matrix) for part, matrix in targets.items()}
    stacked.targets = stack(
        first.targets, {f"{part}.{name}": weight for part in views for name, weight in views[part].items()}
    )
    stacked.target_weights = list(targets.values())
    stacked.followed_weights = [parts[part].matrix for part in targets]
    stacked.config = _stacked_config([learner.config for learner in learners], stacked.target_weights[0].device)
    stacked.generator = [learner.generator for learner in learners]  # type: ignore[misc]
    stacked.mean = masked_means
    return stacked, parts


def _stacked_config(configs: Sequence[IDDPGConfig], device: torch.device) -> IDDPGConfig:
    """The options of all: numbers that differ are tensors, whose first axis is the training."""
    stacked = copy.copy(configs[0])

    def column(name: str, values: Sequence[Any], *shape: int, dtype: torch.dtype = torch.float32) -> None:
        tensor = torch.tensor(values, dtype=dtype, device=device).view(-1, *shape)
        object.__setattr__(stacked, name, tensor)  # of a frozen dataclass: numbers would be checked, tensors cannot be

    column("lr", [config.lr for config in configs], 1, dtype=torch.float64)
    column("lr_critic", [config.lr_critic or config.lr for config in configs], 1, dtype=torch.float64)
    column("max_grad_norm", [config.max_grad_norm or torch.inf for config in configs], 1)
    for name, shape in {"gamma": (1, 1), "tau": (1,)}.items():
        values = [getattr(config, name) for config in configs]
        if len(set(values)) > 1:  # else the same number for all, with the bits of a single training run
            column(name, values, *shape)
    return stacked


def _extended(values: Tensor, n: int) -> Tensor:
    """`[n, ...]`: the values, then the last one again."""
    rest = n - len(values)
    return torch.cat((values, values[-1:].expand(rest, *values.shape[1:]))) if rest else values


def check_ddpg(learners: Sequence[DDPGLearner]) -> None:
    """Raises ConfigError: learners of one group in several training runs cannot learn together."""
    first = learners[0]
    where = f"group {first.group.name!r}"
    check_simultaneous(first.group.name, simultaneous=first.env.simultaneous)
    for learner in learners:
        if type(learner.config) is not type(first.config):
            kinds = f"{first.config.name} and {learner.config.name}"
            raise ConfigError(f"training runs in one batch need the same algorithm; {where} has {kinds}")
        for name in (field.name for field in fields(learner.config)):
            values = getattr(first.config, name), getattr(learner.config, name)
            if values[0] != values[1] and name not in (*STEP_OPTIONS, *LEARNER_OPTIONS):
                raise ConfigError(
                    f"training runs in one batch need equal algorithm.{name}; {where} has {values[0]} and {values[1]}"
                )
        for name, other in learner.other_learners.items():
            if type(other) is not DDPGLearner:
                raise ConfigError(
                    f"the critic of {where} reads the actions of {name!r}, which learns by {type(other).__name__}; "
                    "training runs in one batch need iddpg, maddpg or matd3 there too"
                )
    parts = {part: [getattr(learner.policy, part) for learner in learners] for part in first.targets}
    for part, modules in parts.items():
        check_stackable([module.network for module in modules], f"the {part} of {where}")

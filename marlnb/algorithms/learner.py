"""Learner: one group's policy together with its losses, buffers and optimizer. All groups share the experience."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from marlnb.algorithms.captured import NewGraph
from marlnb.algorithms.gradients.adam import PartAdam
from marlnb.algorithms.rollout import Rollout
from marlnb.errors import CheckpointError
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec


class Learner(ABC):
    """Learns one group's policy.

    A learner receives whole rollouts with every group in them. So different algorithms can learn from the same
    experience, and a centralised critic can read other groups. Rollouts have torchrl's multi-agent layout with batch
    `[env, time]`; `marlnb.training.collect.rollout` lists the keys.

    Attributes:
        group: the agents that learn.
        policy: what they act with, in eval mode. `update` puts it into training mode for gradient steps only.
        optimizers: by name; none, if it has others than Adam.
        by_mask: whether acting and learning are made of tensors alone, so that a GPU is never waited for.
    """

    group: GroupSpec
    policy: Policy
    optimizers: Mapping[str, PartAdam] = MappingProxyType({})
    by_mask: bool = False

    def bind_learners(self, learners: Mapping[str, Learner]) -> None:
        """Called once, after all learners are built and before the first update.

        A centralised critic looks up the other groups' policies here. They are not part of this learner's state.
        """

    def compile_updates(self, after: int, start: int = 0) -> None:
        """Computes gradients by compiled code, if the algorithm and networks can. The other learners ignore it.

        Called once, before the first update and before a state is loaded.

        Args:
            after: number of the first update that uses the compiled code.
            start: number of the update at which another process begins to compile it.
        """

    def capture_updates(self, new_graph: NewGraph) -> str:
        """Learns by a graph from the fourth update on, if the algorithm can; the rollouts must then be one object.

        Called once, as `compile_updates`.

        Returns:
            why it cannot; empty if it can.
        """
        return f"the updates of {type(self).__name__} are not made of tensors alone"

    def forget_captured(self) -> None:
        """Captures the updates again: a state was loaded."""

    @abstractmethod
    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learns from one rollout. Returns metrics by name, for example `entropy` or `explained_variance`."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that learning depends on: weights, optimizer, counters, normalisers, buffers.

        Nested dicts of tensors, numbers, strings, booleans and None only, so that it can be saved without pickle.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a saved state. Training then continues bit for bit on a CPU."""


def linear_schedule(start: float, final: float, frames: int, n_frames: int) -> float:
    """A number that moves linearly from `start` to `final` over `n_frames` frames; 0 frames: `final` at once."""
    remaining = max(0.0, 1 - frames / n_frames) if n_frames else 0.0
    return final + remaining * (start - final)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's parameters and buffers, by name."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Continues a generator's random numbers; one of another kind of device has another state, and stays as it is."""
    if state.numel() == generator.get_state().numel():
        generator.set_state(state.cpu())


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], what: str) -> None:
    """Restores what `weights_of` gave. Raises CheckpointError if that was another module; `what` is for the message."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"the weights do not fit {what}: {error}") from error

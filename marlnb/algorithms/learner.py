"""Learner: one group's policy together with its losses, buffers and optimizer. All groups share the experience."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase

from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec


class Learner(ABC):
    """Learns one group's policy.

    A learner receives whole rollouts with every group in them. So different algorithms can learn from the same
    experience, and a centralised critic can read other groups. Rollouts have torchrl's multi-agent layout with batch
    `[env, time]`; `marlnb.training.collect.rollout` lists the keys.

    Attributes:
        group: the agents that learn.
        policy: what they act with.
    """

    group: GroupSpec
    policy: Policy

    def bind_learners(self, learners: Mapping[str, Learner]) -> None:
        """Called once, after all learners are built and before the first update.

        A centralised critic looks up the other groups' policies here. They are not part of this learner's state.
        """

    @abstractmethod
    def update(self, rollout: TensorDictBase) -> dict[str, float]:
        """Learns from one rollout. Returns metrics by name, for example `entropy` or `explained_variance`."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that learning depends on: weights, optimizer, counters, normalisers, buffers.

        Nested dicts of tensors, numbers, strings, booleans and None only, so that it can be saved without pickle.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a saved state. Training then continues bit for bit on a CPU."""

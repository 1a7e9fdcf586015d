"""Learner: owns one group's policy, losses, buffers and optimizer; learns from rollouts that everyone shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase

from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec


class Learner(ABC):
    """One group's learner.

    It sees the whole rollout, every group included, so any mixture of algorithms learns from one stream of
    experience and a centralised critic may read across groups. The rollout's layout is torchrl's multi-agent one,
    batch `[env, time]`, stated in `marlnb.training.collect.rollout`.
    """

    group: GroupSpec
    policy: Policy

    def meet(self, learners: Mapping[str, Learner]) -> None:
        """Told of every group's learner once, when all are built and before any learns: a critic may need the others'
        policies. What is kept of the others is no part of this learner's own state."""

    @abstractmethod
    def update(self, rollout: TensorDictBase) -> dict[str, float]:
        """Learns from one rollout; returns metrics by name, as `entropy` or `explained_variance`."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that learning depends on (weights, optimizer, counters, normalisers, buffers): nested dicts of
        tensors, numbers, strings, booleans and None only, so that it can be saved without pickle."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on, bit for bit on a CPU, from a saved state."""

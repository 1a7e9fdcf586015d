"""StackedLearner: what learners of several training runs are as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from marlnb.algorithms.rollout import Rollout
from marlnb.errors import ConfigError
from marlnb.models.policies.policy import Policy

TRAIN_SEPARATELY_HINT = (
    "Train these in processes (seed=0..7 --jobs 2), and members of a population one after the other "
    "(evolution.together=false)"
)


def check_simultaneous(group: str, *, simultaneous: bool) -> None:
    """Raises ConfigError if the agents of a group take turns."""
    if not simultaneous:
        raise ConfigError(
            f"agents of group {group!r} take turns; training runs in one batch need all to act at every step. "
            f"{TRAIN_SEPARATELY_HINT}"
        )


class StackedLearner(Protocol):
    """The learners of one group of agents in several training runs."""

    def bind(self, others: Mapping[str, StackedLearner]) -> None:
        """Called once, before the first update, with those of all groups."""

    def policy(self, generators: Sequence[torch.Generator], rows: slice) -> Policy:
        """What the agents of some training runs act with, in environments that are sorted by training.

        Args:
            generators: of every training's actions, so that it explores as it would by itself.
            rows: which of the training runs.
        """

    def update(self, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        """As `Learner.update` of each training's learner, with its rollout."""

"""SharedReplay: one replay buffer for each group of agents, from which all members of a population learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marlnb.algorithms.learner import Learner
from marlnb.algorithms.off_policy import OffPolicyLearner
from marlnb.algorithms.replay import ReplayBuffer
from marlnb.errors import ConfigError


class SharedReplay:
    """The replay buffers of a population, by group: those of the learners that were joined first.

    Each member adds its rollouts and samples those of all, with one generator.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, ReplayBuffer] = {}
        self._saved = True

    def join(self, learners: Mapping[str, Learner]) -> None:
        """Replaces the buffers of a member's learners. Raises ConfigError: one has none, or stores sequences."""
        for name, learner in learners.items():
            if not learner.optimizers:
                continue  # it does not learn
            if not isinstance(learner, OffPolicyLearner) or max(learner.sequence_length, learner.config.n_steps) > 1:
                raise ConfigError(
                    f"evolution.shared_replay=true: group {name!r} has no replay buffer of single steps; it needs an "
                    "off-policy algorithm, such as maddpg, with n_steps=1 and feed-forward networks",
                    at="evolution.shared_replay",
                )
            learner.replay = self._buffers.setdefault(name, learner.replay)
            learner.shares_replay, self._saved = True, learner.config.save_replay

    def state_dict(self) -> dict[str, Any]:
        return {name: buffer.state_dict() for name, buffer in self._buffers.items()} if self._saved else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises CheckpointError as of ReplayBuffer."""
        for name, of_group in state.items():
            self._buffers[name].load_state_dict(of_group)

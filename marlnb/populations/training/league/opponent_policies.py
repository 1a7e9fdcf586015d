"""OpponentPolicies: the policy of any player of a league, as it is now or as its snapshot on disk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from torch import Tensor

from marlnb.errors import CheckpointError
from marlnb.experiment import Experiment
from marlnb.models.networks.by_agent import by_agent
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.players import Player
from marlnb.populations.training.league.files import PlayerHistory
from marlnb.populations.training.league.learning_player import LearningPlayer
from marlnb.populations.training.league.player_experiment import player_experiment
from marlnb.populations.training.league.stacked_opponents import Opponent
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import EnvSpec
from marlnb.training.learners import build_learner

ACTOR = "actor."
MAX_CACHED = 16  # snapshots


class OpponentPolicies:
    """Finds opponents by group and id. Weights of snapshots are read from disk; the last MAX_CACHED of them are kept.

    Args:
        experiment: of the league.
        spec: of the environment.
        snapshots: on disk.
        history: everybody in the league.
        players: by id, those that learn or have learned here.
    """

    def __init__(
        self,
        experiment: Experiment,
        spec: EnvSpec,
        snapshots: SnapshotStore,
        history: PlayerHistory,
        players: Mapping[str, LearningPlayer],
    ) -> None:
        self._experiment, self._spec, self._snapshots = experiment, spec, snapshots
        self._history, self._players = history, players
        self._policies: dict[tuple[str, str], tuple[Policy, str]] = {}
        self._by_architecture: dict[str, Policy] = {}
        self._read = lru_cache(MAX_CACHED)(self._saved_weights)

    def find(self, group: str, name: str) -> Opponent:
        """A player's policy for a group.

        Raises:
            CheckpointError: its snapshot is missing or damaged, or has other networks.
        """
        player = self._history.known[name]
        policy, architecture = self._policy_of(player, group)
        if player.learning and self._is_here(player):
            now = self._players[name].policies[group].state_dict()
            weights = {key: tensor.detach().clone() for key, tensor in _actor_weights(now).items()}
        else:
            weights = self._read(name, player.checkpoint)[group]
        if isinstance(policy, ActorPolicy):
            _check_networks(name, weights, policy.actor.state_dict())
        return Opponent(policy, architecture, weights, is_final=not player.learning)

    def _is_here(self, player: Player) -> bool:
        """Whether its newest weights are in this process: it learns here, or another training run has not begun yet."""
        assert self._experiment.league is not None
        return self._experiment.league.learner in ("", player.id) or player.checkpoint is None

    def _saved_weights(self, name: str, sha256: str | None) -> dict[str, dict[str, Tensor]]:
        """By group, the weights of the actor."""
        return {group: _actor_weights(weights) for group, weights in self._snapshots.read(name, sha256).items()}

    def _policy_of(self, player: Player, group: str) -> tuple[Policy, str]:
        """A policy of the player's architecture, and its name; one for all players that have equal ones."""
        owner = player if player.id in self._players else self._history.known[player.parent]
        key = (owner.id, group)
        if key not in self._policies:
            experiment = player_experiment(self._experiment, self._spec, owner)
            spec = self._spec.group(group)
            policy = build_learner(experiment, self._spec, spec, in_league=True).policy
            architecture = _architecture(policy, repr(by_agent(spec, experiment.actor_of(group), experiment.models)))
            self._policies[key] = (self._by_architecture.setdefault(architecture, policy), architecture)
        return self._policies[key]


def _actor_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(ACTOR): tensor for name, tensor in weights.items() if name.startswith(ACTOR)}


def _architecture(policy: Policy, network: str) -> str:
    """Equal for policies whose actors can be stacked: of the same class, network and distribution."""
    if not isinstance(policy, ActorPolicy):
        return f"{type(policy).__name__} {network}"
    distribution, weights = policy.distribution, policy.actor.state_dict()
    shapes = [(name, tuple(tensor.shape)) for name, tensor in weights.items()]
    squash = getattr(distribution, "squash", "")
    return f"{type(policy).__name__} {network} {type(distribution).__name__} {squash} {shapes}"


def _check_networks(name: str, weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError unless the weights have the names and shapes that are expected."""
    theirs = {key: tuple(tensor.shape) for key, tensor in weights.items()}
    ours = {key: tuple(tensor.shape) for key, tensor in expected.items()}
    for key in sorted(set(theirs) | set(ours)):
        if theirs.get(key) != ours.get(key):
            raise CheckpointError(
                f"the snapshot {name} has other networks than its player: its {key} is {theirs.get(key, 'missing')}, "
                f"expected {ours.get(key, 'none')}"
            )

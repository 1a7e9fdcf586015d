"""PlayerWeights: from where the players of a league get their weights, and where they are saved."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from marlnb.algorithms.learner import weights_of
from marlnb.errors import CheckpointError
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.training.league.files import PlayerHistory
from marlnb.populations.training.league.learning_player import LearningPlayer
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.training.runs.run import opened_run

CRITIC = "critic"
"""Start of the names of a critic's weights, which acting does not need."""


class PlayerWeights:
    """Weights of the players of a league.

    Args:
        players: by id, those that learn or have learned here.
        snapshots: on disk.
        history: everybody in the league.
    """

    def __init__(self, players: Mapping[str, LearningPlayer], snapshots: SnapshotStore, history: PlayerHistory) -> None:
        self._players, self._snapshots, self._history = players, snapshots, history

    def save(self, player: str, name: str, frames: int) -> str:
        """Writes a player's weights as they are now under a name; returns their SHA-256."""
        return self._snapshots.write(name, frames, self._players[player].weights())

    def inherit(self, player: Player) -> None:
        """A new player takes over its parent's weights."""
        if player.parent in self._players:
            weights = self._players[player.parent].weights()
        else:
            weights = self._snapshots.read(player.parent, self._history.known[player.parent].checkpoint)
        self._players[player.id].load_weights(weights, player.parent)

    def copy_from_run(self, new: NewPlayer) -> str:
        """A player gets its weights from another run, as they are there now; returns whose they are, in words.

        Raises:
            CheckpointError: it has other networks.
        """
        source = opened_run(new.run)
        policies = (source.league[new.run_player] if new.run_player else source).policies()
        whose = f"{new.run_player or 'the policies'} of {source.path}"
        own = self._players[new.id].weights()
        weights = {name: _acting(own[name], weights_of(policies[name])) for name in own}
        try:
            self._players[new.id].load_weights(weights, whose)
        except CheckpointError as error:
            grown = (
                ". Networks grow in a population: run.population.winner(path) writes its fittest member as a run whose "
                "experiment has them"
                if source.experiment.evolution is not None
                else ""
            )
            raise CheckpointError(
                f"league player {new.id!r} has other networks than {whose}; models.{new.id}=... and "
                f"critics.{new.id}=... give it the same ones{grown}"
            ) from error
        return whose


def _acting(own: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their weights, but this player's own critics if theirs have other shapes.

    Outside a league a critic of actions may read all groups; in a league it reads its own group alone.
    """
    critics = {name: tensor for name, tensor in own.items() if name.startswith(CRITIC)}
    is_other = any(name in theirs and theirs[name].shape != tensor.shape for name, tensor in critics.items())
    return {**theirs, **(critics if is_other else {})}

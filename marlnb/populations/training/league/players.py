"""LeaguePlayers: the players that one training run of a league trains, with their environments, learners and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from marlnb.envs.external.interface import is_served
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.populations.league.players import Player, Side
from marlnb.populations.training.league.files import PlayerHistory
from marlnb.populations.training.league.learning_player import LearningPlayer
from marlnb.populations.training.league.match_env import MatchEnv, MatchStart
from marlnb.populations.training.league.opponent_policies import OpponentPolicies
from marlnb.populations.training.league.player_experiment import player_experiment
from marlnb.populations.training.snapshots import SnapshotStore


class LeaguePlayers:
    """The players of a league that learn or have learned here.

    Args:
        experiment: with a league.
        env: the environments of the first player; the others get their own.
        device: of the networks.
        sides: of every match.
        snapshots: on disk.
        history: everybody in the league.

    Attributes:
        by_id: the players.
        frames: by id, from which they have learned; also of players that learn in other training runs.
    """

    def __init__(
        self,
        experiment: Experiment,
        env: VectorEnv,
        device: torch.device,
        sides: Sequence[Side],
        snapshots: SnapshotStore,
        history: PlayerHistory,
    ) -> None:
        assert experiment.league is not None
        self._experiment, self._config = experiment, experiment.league
        self._first_env, self._spec, self._device = env, env.spec, device
        self._sides, self._history = sides, history
        self.by_id: dict[str, LearningPlayer] = {}
        self.frames: dict[str, int] = {}
        self._opponents = OpponentPolicies(experiment, env.spec, snapshots, history, self.by_id)

    def join(self, player: Player, draw: Callable[[int], MatchStart]) -> None:
        """A player gets environments and learners.

        Args:
            draw: the start of its match number n.
        """
        experiment = self._experiment_of(player)
        is_first = not any(other.player.learning for other in self.by_id.values())
        is_shared = is_first or not player.learning or bool(self._config.learner)  # at most one player steps it
        env = self._first_env if is_shared else self._another_env(player, experiment)
        try:
            rules = self._config.win_threshold, self._config.win_margin
            matches = MatchEnv(env, player.id, self._sides, draw, *rules)
            self.by_id[player.id] = LearningPlayer(player, experiment, matches, self._device, self._opponents.find)
        except BaseException:
            if not is_shared:
                env.close()
            raise
        self.frames.setdefault(player.id, 0)

    def restart(self, player: Player) -> None:
        """A player starts again with the weights of its number of resets."""
        self.by_id[player.id].restart(self._experiment_of(player))

    def frames_of(self, players: Iterable[Player]) -> dict[str, int]:
        """By id."""
        return {player.id: self.frames[player.id] for player in players}

    def close_env(self, name: str) -> None:
        """Frees a player's environments, unless they are those of the caller."""
        env = self.by_id[name].env
        if env.env is not self._first_env:
            env.close()

    def _experiment_of(self, player: Player) -> Experiment:
        return player_experiment(self._experiment, self._spec, player, self._history.n_resets(player.id))

    def _another_env(self, player: Player, experiment: Experiment) -> VectorEnv:
        if is_served(self._first_env):
            raise ConfigError(
                f"league {self._config.name!r}: {player.id!r} needs envs of its own, but simulators connect to "
                f"{self._spec.name} at one address; valid: leagues in which one player learns, such as self_play in a "
                "game whose players form one group, or league.learner, which trains one player of several",
                at="league",
            )
        return build_env(experiment, experiment.n_envs, device=experiment.device)

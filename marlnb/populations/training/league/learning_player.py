"""LearningPlayer: one player of a league that learns, with its own environments, learners and loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from marlnb.algorithms.learner import Learner, load_weights, weights_of
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.players import ANY_SIDE, Player
from marlnb.populations.training.league.match_env import MatchEnv
from marlnb.populations.training.league.match_policy import MatchLearner, MatchPolicy
from marlnb.populations.training.league.player_experiment import played_groups
from marlnb.populations.training.league.stacked_opponents import Opponent, StackedOpponents
from marlnb.populations.training.snapshots import PolicyWeights
from marlnb.specs import EnvSpec
from marlnb.training.learners import build_learner
from marlnb.training.loop import Advance, Loop

FindOpponent = Callable[[str, str], Opponent]  # of a group and a player's id


class LearningPlayer:
    """Trains one player against the opponents that its environment draws.

    Args:
        player: who learns.
        experiment: its own, as `player_experiment` gives it.
        env: its matches.
        device: of its networks.
        find: an opponent's policy for a group.

    Attributes:
        learners: by group, those of the groups that it plays.
        env: its matches.
    """

    def __init__(
        self, player: Player, experiment: Experiment, env: MatchEnv, device: torch.device, find: FindOpponent
    ) -> None:
        self.player, self.env, self._device = player, env, device
        self.learners = build_player_learners(experiment, env.spec, player, env)
        self._match_learners: dict[str, MatchLearner] = {}
        for group in env.spec.groups:
            learner = self.learners.get(group.name)
            opponents = StackedOpponents(group, env.n_envs, lambda name, group=group.name: find(group, name), device)  # type: ignore[misc]
            policy = MatchPolicy(group, None if learner is None else learner.policy, opponents, env)
            self._match_learners[group.name] = MatchLearner(policy, learner)
        self._bind()
        self.loop = Loop(experiment, env, device, self._match_learners)

    @property
    def policies(self) -> dict[str, Policy]:
        return {name: learner.policy for name, learner in self.learners.items()}

    @property
    def opponents(self) -> dict[str, StackedOpponents]:
        """By group, who acts for the other sides."""
        return {name: learner.policy.opponents for name, learner in self._match_learners.items()}

    def weights(self) -> PolicyWeights:
        """A copy of its policies' weights, by group."""
        return {name: weights_of(policy) for name, policy in self.policies.items()}

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]], whose: str) -> None:
        """Takes over the weights of another player. Raises CheckpointError if it has other networks."""
        for name, policy in self.policies.items():
            load_weights(policy, weights[name], f"{self.player.id!r}, which starts from {whose!r}")

    def restart(self, experiment: Experiment) -> None:
        """Starts again from the weights that `experiment` gives."""
        self.learners = build_player_learners(experiment, self.env.spec, self.player, self.env)
        for name, learner in self.learners.items():
            self._match_learners[name].replace_player(learner)
        self._bind()

    def begin(self, iteration: int) -> None:
        """Begins new matches in every environment."""
        self.loop.begin(iteration)
        self._seat()

    def advance(self) -> Advance:
        """One rollout and update. Opponents that learn have the weights of its beginning."""
        for opponents in self.opponents.values():
            opponents.refresh()
        advance = self.loop.advance()
        self._seat()  # matches that began at the last step
        return advance

    def state_dict(self) -> dict[str, Any]:
        opponents = {name: each.state_dict() for name, each in self.opponents.items()}
        return {**self.loop.state_dict(), "matches": self.env.match_state(), "opponents": opponents}

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        self.loop.load_state_dict(state, iteration)
        self.env.load_match_state(state["matches"])
        self._seat()
        for name, opponents in self.opponents.items():
            opponents.load_state_dict(state["opponents"][name])

    def learners_state(self) -> dict[str, Any]:
        """Of a player that no longer learns: its learners alone."""
        return {"learners": {name: learner.state_dict() for name, learner in self.learners.items()}}

    def load_learners(self, state: Mapping[str, Any]) -> None:
        """Restores what `learners_state` has by that name."""
        for name, learner in self.learners.items():
            learner.load_state_dict(state[name])

    def _seat(self) -> None:
        for name, opponents in self.opponents.items():
            matches = self.env.matches[name]
            if matches.changed:
                opponents.seat(matches.players, matches.take_started())

    def _bind(self) -> None:
        everyone: dict[str, Learner] = {**self._match_learners, **self.learners}
        for learner in self.learners.values():
            learner.bind_learners(everyone)


def build_player_learners(experiment: Experiment, spec: EnvSpec, player: Player, env: MatchEnv) -> dict[str, Learner]:
    """The learners of the groups that a player acts for.

    Raises:
        ConfigError: its algorithm does not learn, or takes agents for a team that play against each other.
    """
    learners = {}
    for group in played_groups(player, env.sides, spec):
        algorithm = experiment.algorithm_of(group)
        if not algorithm.learns:
            raise ConfigError(
                f"league player {player.id!r} has the algorithm {algorithm.name!r}, which does not learn; give it "
                f"another, such as algorithms.{player.role}=ippo"
            )
        if algorithm.team_reward and player.side == ANY_SIDE:
            raise ConfigError(
                f"{algorithm.name} for league player {player.id!r} takes {', '.join(spec.group(group).agents)} for a "
                "team that shares its reward, but they play against each other; algorithms of single agents: ippo, iql"
            )
        learners[group] = build_learner(experiment, spec, spec.group(group), in_league=True)
    return learners

"""MatchPolicy acts for both sides of a match, and MatchLearner learns from the home player's side alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from marlnb.algorithms.learner import Learner
from marlnb.algorithms.rollout import Rollout
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.populations.training.league.match_env import MatchEnv
from marlnb.populations.training.league.stacked_opponents import StackedOpponents
from marlnb.specs import GroupSpec

HOME_CELLS = "home"  # field of a rollout, [env, time, agent] bool: the home player acted here


class MatchPolicy(Policy):
    """One group's policy during a player's matches: the home player's in its own cells, opponents' in theirs.

    Args:
        group: the agents.
        home: the home player's policy; None: the group belongs to another side.
        opponents: who act in the other cells.
        env: where the matches are played.
    """

    def __init__(self, group: GroupSpec, home: Policy | None, opponents: StackedOpponents, env: MatchEnv) -> None:
        super().__init__()
        self.group, self.home, self.opponents, self.env = group, home, opponents, env
        if home is not None:
            self.greedy, self.recurrent_shape = home.greedy, home.recurrent_shape
            self.critic_recurrent_shape = home.critic_recurrent_shape

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        """The output has one more extra, HOME_CELLS. Log-probabilities and logits are those of the home player."""
        output = self._without_home(observation) if self.home is None else self.home.choose(observation, context)
        matches = self.env.matches[self.group.name]
        if matches.changed:
            self.opponents.seat(matches.players, matches.take_started())
        acting = self.env.acting(self.group.name)
        action = self.opponents.act(observation, output.action, context, acting)
        return output._replace(action=action, extras={**output.extras, HOME_CELLS: self.opponents.home})

    def begin_episodes(self, done: Tensor) -> None:
        if self.home is not None:
            self.home.begin_episodes(done)

    def _without_home(self, observation: Tensor) -> ActorOutput:
        """Zeros in the place of the home player's output."""
        spec, shape = self.group.action, (len(observation), self.group.n_agents)
        action = torch.zeros(*shape, *spec.shape, dtype=getattr(torch, spec.dtype), device=observation.device)
        return ActorOutput(action, action.new_zeros(shape, dtype=torch.float32), torch.zeros(*shape, 0))


class MatchLearner(Learner):
    """The home player's learner; it receives rollouts in which only the home player's agents act.

    So nothing of its opponents enters losses, advantages or normalisers, and in turn-based games the home player's
    turns follow each other.

    Attributes:
        player: what learns; None: the group belongs to another side, and nothing learns.
    """

    policy: MatchPolicy

    def __init__(self, policy: MatchPolicy, player: Learner | None) -> None:
        self.policy, self.player, self.group = policy, player, policy.group

    def replace_player(self, player: Learner) -> None:
        """Another learner takes over, as after a reset."""
        self.player, self.policy.home = player, player.policy

    def update(self, rollout: Rollout) -> dict[str, float]:
        if self.player is None:
            return {}
        return self.player.update(home_rollout(rollout, self.group.name))

    def state_dict(self) -> dict[str, Any]:
        return {} if self.player is None else self.player.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.player is not None:
            self.player.load_state_dict(state)


def home_rollout(rollout: Rollout, group: str) -> Rollout:
    """The rollout with `(group, "acting")` True only for the home player; tensors are shared, not copied.

    Where an opponent acts in place of an agent, that agent does not wait: it counts as paused (`ends_of`).
    """
    home, acting, paused = rollout[group, HOME_CELLS], rollout[group, "acting"], rollout.get("paused")
    if paused is None and bool(home.all()):
        return rollout
    rollout = rollout.clone(recurse=False)
    rollout[group, "acting"] = acting & home
    if paused is not None:
        rollout["paused"] = paused | (acting & ~home)
    return rollout

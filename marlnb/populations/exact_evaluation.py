"""Exploitability of runs, players and snapshots in games whose states are listed (`tree/…`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch

from marlnb.envs.games.tree import TreeConfig
from marlnb.envs.games.tree_tables import GameTree
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.policy import Policy
from marlnb.populations.ratings.exploitability import mixture, nash_conv, payoffs_between
from marlnb.populations.ratings.nash_averaging import nash_averaging
from marlnb.populations.run_league import LeaguePlayer, RunLeague
from marlnb.training.runs.run import Run

Weights = Literal["uniform", "nash"]


def exploitability(player: Run | LeaguePlayer) -> float:
    """What an opponent that knows a policy exactly, and responds best, wins on average over all seats.

    The policy has all other seats. Exploitability = NashConv / number of players, in the game's rewards; 0 in an
    equilibrium. It is exact: no games are played. In games whose returns do not add up to 0, it is what the opponent
    wins more than the policy itself.

    Source: OpenSpiel, algorithms/tabular_exploitability.

    Args:
        player: a run, or a player or snapshot of a league, in an environment `tree/…`.
    Raises:
        AnalysisError: the environment's states are not listed, or the policy has a memory.
    """
    tree = tree_of(player)
    (policy,) = player.policies().values()
    return _exploitability(tree, behaviour(policy, tree))


def league_exploitability(league: RunLeague, weights: Weights = "nash") -> float:
    """As `exploitability`, of a player that draws a snapshot of the league before each game.

    Args:
        league: with snapshots.
        weights: uniform: all snapshots are equally likely. nash: as in the equilibrium of largest entropy between the
            snapshots (Nash averaging). What they win against each other is computed, as they may never have met.
    Raises:
        AnalysisError: as `exploitability`, or there are no snapshots, or more than two seats and weights="nash".
    """
    tree = tree_of(league.run)
    snapshots = [league[name] for name, player in league.history.playing.items() if player.is_snapshot]
    behaviours = []
    for snapshot in snapshots:
        (policy,) = snapshot.policies().values()
        behaviours.append(behaviour(policy, tree))
    return _exploitability(tree, mixture(tree, behaviours, mixture_weights(tree, behaviours, weights)))


def mixture_weights(tree: GameTree, behaviours: Sequence[np.ndarray], weights: Weights) -> np.ndarray:
    """The probability of each of several behaviours in a mixture; see `league_exploitability`."""
    if weights not in get_args(Weights):
        raise AnalysisError(unknown("weights of a mixture", str(weights), get_args(Weights)))
    if not behaviours:
        raise AnalysisError("the league has no snapshots yet")
    if weights == "uniform":
        return np.full(len(behaviours), 1 / len(behaviours))
    return np.asarray(nash_averaging(payoffs_between(tree, behaviours)).shares)


def tree_of(player: Run | LeaguePlayer) -> GameTree:
    """All states of a player's game. Raises AnalysisError: they are not listed."""
    env = player.experiment.env
    if not isinstance(env, TreeConfig):
        raise AnalysisError(
            f"exact exploitability needs an environment whose states are listed, such as tree/biased_rps, "
            f"tree/kuhn_poker, tree/leduc_poker or tree/openspiel; got {env.name}. In larger games, train an opponent "
            "against it with mnb.best_response(player, env_steps=...)"
        )
    return env.tree


def _exploitability(tree: GameTree, behaviour: np.ndarray) -> float:
    return nash_conv(tree, behaviour) / tree.n_players


@torch.no_grad()
def behaviour(policy: Policy, tree: GameTree) -> np.ndarray:
    """A policy's probability of each action, `[information state, action]`.

    Raises:
        AnalysisError: the policy has a memory, so that its choice is no function of the observation.
    """
    if policy.recurrent_shape is not None:
        raise AnalysisError("exact exploitability needs a policy without memory; got a recurrent network")
    first = tree.first_of
    index, whose = torch.arange(len(first)), torch.as_tensor(tree.player[first])
    mask = torch.ones(len(first), tree.n_players, tree.n_actions, dtype=torch.bool)
    mask[index, whose] = torch.as_tensor(tree.allowed[first])
    output = policy.act(torch.as_tensor(tree.observations[first], dtype=torch.float32), action_mask=mask)
    if isinstance(policy, ActorPolicy):
        chances = output.logits[index, whose].double().softmax(-1)
    else:
        chances = torch.nn.functional.one_hot(output.action[index, whose], tree.n_actions).double()
    chances = chances * mask[index, whose]
    return np.asarray((chances / chances.sum(-1, keepdim=True)).numpy())

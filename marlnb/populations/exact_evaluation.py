"""Exploitability of runs, players and snapshots in games whose states are listed (`tree/…`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch

from marlnb.envs.games.tree import TreeConfig
from marlnb.envs.games.tree_tables import GameTree
from marlnb.errors import AnalysisError, NoExactValueError, unknown
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.players import ANY_SIDE
from marlnb.populations.league.roster import is_symmetric
from marlnb.populations.matches.seating import player_side
from marlnb.populations.ratings.exploitability import (
    best_response_value,
    mixture,
    nash_conv,
    payoffs_between,
    payoffs_by_seat,
)
from marlnb.populations.ratings.nash_averaging import max_entropy_strategy, nash_averaging
from marlnb.populations.run_league import LeaguePlayer, RunLeague
from marlnb.training.runs.run import Run

Weights = Literal["uniform", "nash"]
INSTEAD = "train an opponent against it with mnb.best_response(player, env_steps=...)"


def exploitability(player: Run | LeaguePlayer) -> float:
    """What an opponent that knows a policy exactly, and responds best, wins on average over all seats.

    The policy has all other seats. Exploitability = NashConv / number of players, in the game's rewards; 0 in an
    equilibrium. It is exact: no games are played. In games whose returns do not add up to 0, it is what the opponent
    wins more than the policy itself.

    The policy is what a player plays in a league: Q-learning takes the action of the largest Q value, without
    exploration, as in evaluations; others draw their actions. Where groups have policies of their own, each acts in its
    seats. Of a player of a league that takes one side only, it is what the opponent wins in the other seat; in an
    equilibrium that is the game's value there.

    Source: OpenSpiel, algorithms/tabular_exploitability.

    Args:
        player: a run, or a player or snapshot of a league, in an environment `tree/…`.
    Raises:
        NoExactValueError: the environment's states are not listed, the policy has a memory or reads what other players
            observe, or the player takes one of more than two seats.
    """
    if player_side(player) != ANY_SIDE:
        return perfect_response(player, player_side(player))
    tree = tree_of(player)
    return nash_conv(tree, behaviour(player.policies(), tree)) / tree.n_players


def perfect_response(player: Run | LeaguePlayer, side: str = ANY_SIDE) -> float:
    """The mean return of an opponent that knows a policy exactly and responds best, over the seats that it takes.

    Args:
        side: the only one that the player takes; ANY_SIDE: the opponent takes each seat in turn, the player the others.
    Raises:
        NoExactValueError: as `exploitability`.
    """
    tree = tree_of(player)
    kept = player.spec.group(side).agents if side != ANY_SIDE else ()
    seats = [seat for seat, agent in enumerate(tree.agents) if agent not in kept]
    if kept and len(seats) > 1:
        raise NoExactValueError(
            f"exact exploitability of one side needs a game of two players; {player.spec.name} has {tree.n_players}"
        )
    played = behaviour(player.policies(), tree)
    return float(np.mean([best_response_value(tree, played, seat) for seat in seats]))


def league_exploitability(league: RunLeague, weights: Weights = "nash") -> float:
    """As `exploitability`, of a player that draws a snapshot of the league before each game.

    Where sides have players of their own, it draws one of the snapshots of each side.

    Args:
        league: with snapshots.
        weights: uniform: all snapshots are equally likely. nash: as in the equilibrium of largest entropy between the
            snapshots (Nash averaging). What they win against each other is computed, as they may never have met.
    Raises:
        NoExactValueError: as `exploitability`, or there are no snapshots, or more than two seats and weights="nash".
    """
    tree = tree_of(league.run)
    seats_of = _seats_of(league, tree)
    behaviours: dict[str, list[np.ndarray]] = {side: [] for side in seats_of}
    for name, player in league.history.playing.items():
        if player.is_snapshot:
            behaviours[player.side].append(behaviour(league[name].policies(), tree))
    shares = mixture_weights(tree, list(behaviours.values()), weights)
    mixed = np.zeros((tree.n_information_states, tree.n_actions))
    whose = tree.player[tree.first_of]
    for (side, candidates), share in zip(behaviours.items(), shares):
        rows = np.isin(whose, seats_of[side])
        mixed[rows] = mixture(tree, candidates, share)[rows]
    return nash_conv(tree, mixed) / tree.n_players


def mixture_weights(
    tree: GameTree, behaviours: Sequence[Sequence[np.ndarray]], weights: Weights
) -> tuple[np.ndarray, ...]:
    """The probabilities of several behaviours in a mixture; see `league_exploitability`.

    Args:
        behaviours: of all players, or those of each seat.
    Returns:
        as many arrays `[behaviour]`.
    """
    if weights not in get_args(Weights):
        raise AnalysisError(unknown("weights of a mixture", str(weights), get_args(Weights)))
    if not all(behaviours):
        raise NoExactValueError("the league has no snapshots yet, or none of one side")
    if weights == "uniform":
        return tuple(np.full(len(candidates), 1 / len(candidates)) for candidates in behaviours)
    if len(behaviours) == 1:
        return (nash_averaging(payoffs_between(tree, behaviours[0])).shares,)
    payoffs = payoffs_by_seat(tree, behaviours[0], behaviours[1])
    return max_entropy_strategy(payoffs), max_entropy_strategy(-payoffs.T)


def tree_of(player: Run | LeaguePlayer) -> GameTree:
    """All states of a player's game. Raises NoExactValueError: they are not listed."""
    env = player.experiment.env
    if not isinstance(env, TreeConfig):
        raise NoExactValueError(
            f"exact exploitability needs an environment whose states are listed, such as tree/biased_rps, "
            f"tree/kuhn_poker, tree/leduc_poker or tree/openspiel; got {env.name}. In larger games, {INSTEAD}"
        )
    return env.tree


def behaviour(policies: Mapping[str, Policy], tree: GameTree) -> np.ndarray:
    """The probability of each action by the policy of the player whose turn it is, `[information state, action]`.

    Policies of Q values take the largest one. Agents without a network have the probabilities of their random choice,
    or take one action for certain.

    Raises:
        NoExactValueError: a policy has a memory, or reads what other players observe, so that its choice is no function
            of the information state.
    """
    first = tree.first_of
    probabilities = np.zeros((len(first), tree.n_actions))
    for policy in policies.values():
        seats = [tree.agents.index(agent) for agent in policy.group.agents]
        own = np.isin(tree.player[first], seats)
        probabilities[own] = _choices(policy, tree, first[own], seats)
        if policy.cross_agent:
            states = np.flatnonzero(np.isin(tree.player, seats))
            expected = probabilities[tree.information[states]]
            if not np.allclose(_choices(policy, tree, states, seats), expected, atol=1e-5):
                raise NoExactValueError(
                    "exact exploitability needs a policy that acts by what its own player knows; the network of "
                    f"{policy.group.name!r} reads what other players observe"
                )
    return probabilities


@torch.no_grad()
def _choices(policy: Policy, tree: GameTree, states: np.ndarray, seats: Sequence[int]) -> np.ndarray:
    """A policy's probability of each action, `[state, action]`, where it is the turn of one of its seats."""
    if policy.recurrent_shape is not None:
        raise NoExactValueError(
            f"exact exploitability needs a policy without memory; got a recurrent network. Instead, {INSTEAD}"
        )
    index, row = torch.arange(len(states)), torch.tensor([seats.index(player) for player in tree.player[states]])
    mask = torch.ones(len(states), len(seats), tree.n_actions, dtype=torch.bool)
    mask[index, row] = torch.as_tensor(tree.allowed[states])
    observation = torch.as_tensor(tree.observations[states][:, seats], dtype=torch.float32)
    output = policy.act(observation, action_mask=mask, explore=False)
    if policy.greedy or not output.logits.shape[-1]:
        chances = torch.nn.functional.one_hot(output.action[index, row], tree.n_actions).double()
    else:
        chances = output.logits[index, row].double().softmax(-1)
    chances = chances * mask[index, row]
    return np.asarray((chances / chances.sum(-1, keepdim=True)).numpy())


def _seats_of(league: RunLeague, tree: GameTree) -> dict[str, list[int]]:
    """The seats of each side that has players of its own, in their order; all seats where any player takes any."""
    if is_symmetric(league.sides, league.run.spec):
        return {ANY_SIDE: list(range(tree.n_players))}
    seats = {side.name: [tree.agents.index(agent) for agent in side.agents] for side in league.sides}
    return dict(sorted(seats.items(), key=lambda item: item[1]))

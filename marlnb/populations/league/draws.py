"""Draws by counter: a pure function of (seed, player, number, league), so every process draws the same match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from marlnb.errors import ConfigError, unknown
from marlnb.league_config import LeagueConfig
from marlnb.populations.counter_draws import generator
from marlnb.populations.league.matches import EVALUATION
from marlnb.populations.league.players import ANY_SIDE, Player, check_id
from marlnb.populations.league.state import Action, Decision, Draw, LeagueState

LEARNER_ACTIONS = ("snapshot", "reset")  # what a training run with `league.learner` can do, each to its own player


@dataclass(frozen=True)
class Pairing:
    """A match that was drawn: its kind, and the player of each side, by the side's name in the order of the sides."""

    kind: str
    players: dict[str, str]


def draw_match(config: LeagueConfig, league: LeagueState, learner: str, number: int, seed: int) -> Pairing:
    """The match number `number` of a learning player.

    A share of `config.evaluation_share` of the matches is between the pair of players, snapshots included, that has
    met least often; the others are those that `config.draw` answers. In a symmetric game the learner's seat is drawn.

    Raises:
        ConfigError: the config answered a player that does not exist, or that cannot take the side.
    """
    rng, player = generator(seed, "match", learner, number), league.players[learner]
    if config.evaluation_share and rng.random() < config.evaluation_share:
        return _evaluation(rng, league)
    try:
        draw = config.draw(rng, player, league)
    except ConfigError as error:
        others = ", ".join(other for other in league.players if other != learner) or "no other players"
        whose = f"league {config.name!r}, player {learner!r}"
        raise ConfigError(f"{whose}: {error}; besides it there are: {others}") from error
    _check(config, league, player, draw)
    names = [side.name for side in league.sides]
    home = int(rng.random() * len(names)) if player.side == ANY_SIDE else names.index(player.side)
    opponents = iter(draw.opponents)
    return Pairing(draw.kind, {name: learner if k == home else next(opponents) for k, name in enumerate(names)})


def review(config: LeagueConfig, league: LeagueState, player: str, seed: int) -> tuple[Decision, ...]:
    """What happens to a player at the end of round `league.round`, by `config.review`.

    Raises:
        ConfigError: a decision that is not valid.
    """
    rng = generator(seed, "review", player, league.round)
    decisions = tuple(config.review(rng, league.players[player], league))
    for decision in decisions:
        _check_decision(config, league, decision, player)
    return decisions


def choose(
    rng: np.random.Generator, candidates: Sequence[Player], weights: Sequence[float] | np.ndarray | None = None
) -> str:
    """The id of one candidate, with a probability in proportion to its weight.

    Without weights, or if all are 0, candidates are equally likely. One uniform number is searched for in the
    cumulative weights.

    Raises:
        ConfigError: there are no candidates.
    """
    if not candidates:
        raise ConfigError("there is no opponent: the match needs a player or snapshot of a role that is missing")
    cumulative = None if weights is None else np.cumsum(np.asarray(weights, float))
    if cumulative is None or not cumulative[-1] > 0:
        position = int(rng.random() * len(candidates))
    else:
        position = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
    return candidates[min(position, len(candidates) - 1)].id


def _evaluation(rng: np.random.Generator, league: LeagueState) -> Pairing:
    """Two players that have met least often, on the first two sides; ties, and the players of further sides, drawn."""
    sides = [side.name for side in league.sides]
    candidates = [[player.id for player in league.players.values() if player.takes(side)] for side in sides]
    counts = league.payoff.counts(candidates[0], candidates[1]).astype(float)
    counts[np.equal.outer(candidates[0], candidates[1])] = np.inf
    rows, columns = np.nonzero(counts == counts.min())
    pair = int(rng.random() * len(rows))
    chosen = [candidates[0][rows[pair]], candidates[1][columns[pair]]]
    chosen += [names[int(rng.random() * len(names))] for names in candidates[2:]]
    return Pairing(EVALUATION, dict(zip(sides, chosen)))


def _check(config: LeagueConfig, league: LeagueState, player: Player, draw: Draw) -> None:
    """Raises ConfigError unless a draw names an existing player for each other side."""
    sides = league.other_sides(player)
    if len(draw.opponents) != len(sides):
        count = f"{len(sides)} opponents, one for each other side; got {len(draw.opponents)}: {draw.opponents}"
        raise ConfigError(f"league {config.name!r}: a draw for {player.id!r} needs {count}")
    for side, opponent in zip(sides, draw.opponents):
        if opponent not in league.players:
            what = f"player in a draw of league {config.name!r} for {player.id!r}"
            raise ConfigError(unknown(what, opponent, league.players))
        if not league.players[opponent].takes(side):
            raise ConfigError(f"league {config.name!r}: {opponent!r} cannot play {side!r}, only its own side")


def _check_decision(config: LeagueConfig, league: LeagueState, decision: Decision, reviewed: str) -> None:
    """Raises ConfigError unless a decision of a player's review is valid in the league that was reviewed."""
    where = f"league {config.name!r}"
    if decision.action not in get_args(Action):
        raise ConfigError(f"{where}: {unknown('action of a decision', str(decision.action), get_args(Action))}")
    if decision.player and decision.player not in league.players:
        raise ConfigError(f"{where}: {unknown('player in a decision', decision.player, league.players)}")
    if config.learner and (decision.action not in LEARNER_ACTIONS or decision.player not in ("", config.learner)):
        whom = "a new player" if decision.action == "add" else repr(decision.player or config.learner)
        raise ConfigError(
            f"{where} wants to {decision.action} {whom}, but this training run trains {config.learner!r} alone; valid: "
            f"{' or '.join(LEARNER_ACTIONS)} {config.learner!r}. Without league.learner, one training run trains all "
            "players, and can add, freeze and retire them"
        )
    player = league.players[decision.player or reviewed]
    if decision.action in LEARNER_ACTIONS and not player.learning:
        raise ConfigError(f"{where}: a decision to {decision.action} {player.id!r}, which does not learn")
    if decision.action != "add":
        return
    if decision.new is None:
        raise ConfigError(f'{where}: a decision to "add" needs `new`, the player to add')
    check_id(where, decision.new.id)
    if decision.new.parent and decision.new.parent not in league.players:
        raise ConfigError(f"{where}: {unknown('parent of a new player', decision.new.parent, league.players)}")

"""Ratings over time: the Elo of each player at the end of several rounds, next to the cyclic share of the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from marlnb.populations.league.matches import Match
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.player_log import PlayerEvent
from marlnb.populations.league.resets import Resets
from marlnb.populations.league.summary import rate_players

MAX_POINTS = 20


@dataclass(frozen=True)
class RoundRatings:
    """The ratings at the end of one round.

    Attributes:
        round: its number.
        matches: that began until then.
        elo: by player, of those that have met another one since their last reset.
        cyclic_share: of the log-odds between players, which no rating can show.
    """

    round: int
    matches: int
    elo: Mapping[str, float]
    cyclic_share: float


def ratings_over_rounds(
    matches: Sequence[Match],
    events: Iterable[PlayerEvent],
    decay: float,
    rounds: Iterable[int] | None = None,
    *,
    by_frames: bool = False,
) -> Iterator[RoundRatings]:
    """The ratings at the end of some rounds, as the league knew them then.

    Args:
        matches: the record.
        events: of the players; a reset at the end of a round forgets the player's results.
        decay: of the payoff table.
        rounds: None: at most MAX_POINTS, evenly spaced, with the last one.
        by_frames: as of `Resets`, for training runs of single players. Their rounds do not say when another's player
            was reset, so at all rounds only matches since its last reset count.
    """
    events = list(events)
    numbers = sorted({match.round for match in matches})
    wanted = set(evenly(numbers, MAX_POINTS) if rounds is None else rounds)
    resets = Resets.of(events, by_frames) if by_frames else None
    pending = [] if by_frames else [event for event in events if event.event == "reset"]
    table, n_matches = PayoffTable.empty(decay=decay), 0
    by_round = sorted(matches, key=lambda match: match.round)  # long matches end after later ones have begun
    for number, of_round in groupby(by_round, key=lambda match: match.round):
        while pending and pending[0].round < number:
            player = pending.pop(0).player
            table = table.forget(player) if player in table.players else table
        played = tuple(of_round)
        table, n_matches = table.add(played, resets=resets), n_matches + len(played)
        if number in wanted:
            yield _at(number, n_matches, table)


def evenly(numbers: Sequence[int], n: int) -> list[int]:
    """At most n of some numbers, evenly spaced, with the first and the last."""
    if not numbers:
        return []
    return [numbers[k] for k in np.unique(np.linspace(0, len(numbers) - 1, min(n, len(numbers))).round().astype(int))]


def _at(number: int, n_matches: int, table: PayoffTable) -> RoundRatings:
    ratings = rate_players(table)
    rated = zip(ratings.players, ratings.elo.tolist(), ratings.games.tolist())
    return RoundRatings(number, n_matches, {name: elo for name, elo, games in rated if games}, ratings.cycles.share)

"""The payoff table: how often each player beat each other one. A view of the matches, which are the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from marlnb.display.array_summary import FieldsSummary
from marlnb.errors import ConfigError, unknown
from marlnb.populations.league.matches import Match
from marlnb.populations.league.resets import Resets

UNKNOWN = 0.5  # the win rate of players that have not met


@dataclass(frozen=True, eq=False, repr=False)
class PayoffTable(FieldsSummary):
    """Results by ordered pair of players, whatever seats they had.

    With decay d, a match of A and B with score s of A (1: won, 1/2: draw, 0: lost) changes the pair to

        games <- d games + 1,    wins <- d wins + s,    P[A beats B] = wins / games

    Source: AlphaStar's payoff (Vinyals et al. 2019, pseudocode), with d = 0.99.

    Attributes:
        players: their ids, the order of both axes.
        games: decayed number of games `[player, opponent]`.
        wins: decayed number of wins and half of the draws `[player, opponent]`.
        matches: number of games without decay `[player, opponent]`; of a player and itself: its self-play.
        decay: d.
    """

    players: tuple[str, ...]
    games: np.ndarray
    wins: np.ndarray
    matches: np.ndarray
    decay: float = 0.99

    @staticmethod
    def empty(players: Sequence[str] = (), decay: float = 0.99) -> PayoffTable:
        shape = (len(players), len(players))
        return PayoffTable(tuple(players), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64), decay)

    @staticmethod
    def from_matches(
        matches: Iterable[Match],
        players: Sequence[str] = (),
        decay: float = 0.99,
        resets: Resets | None = None,
    ) -> PayoffTable:
        """The table of all matches, in their order.

        Args:
            matches: the record.
            players: they come first, others as they appear.
            decay: d.
            resets: as of `add`.
        """
        return PayoffTable.empty(players, decay).add(matches, resets=resets)

    def add(self, matches: Iterable[Match], players: Sequence[str] = (), resets: Resets | None = None) -> PayoffTable:
        """The table after further matches, and with further players. This one stays as it is.

        Args:
            matches: the record.
            players: they join the table.
            resets: of a match, a pair counts in which no player has been reset since.
        """
        matches = tuple(matches)
        appeared = (player for match in matches for player in match.players.values())
        names = tuple(dict.fromkeys((*self.players, *players, *appeared)))
        index = {name: k for k, name in enumerate(names)}
        games, wins, counts = (_grown(table, len(names)) for table in (self.games, self.wins, self.matches))
        for match in matches:
            ids, outcomes = tuple(match.players.values()), match.outcomes
            sides = range(len(ids)) if resets is None else np.flatnonzero(resets.valid(match)).tolist()
            met = set()
            for first, second in combinations(sides, 2):
                a, b = index[ids[first]], index[ids[second]]
                if (a, b) in met or (b, a) in met:
                    continue  # one game of a pair, also where a player has several seats
                met.add((a, b))
                counts[a, b] += 1
                if a == b:
                    continue  # self-play is counted, but says nothing about who is stronger
                counts[b, a] += 1
                lead = outcomes[first] - outcomes[second]
                score = 0.5 + 0.5 * (lead if len(ids) == 2 else np.sign(lead))
                for row, column, value in ((a, b, score), (b, a, 1 - score)):
                    games[row, column] = self.decay * games[row, column] + 1
                    wins[row, column] = self.decay * wins[row, column] + value
        return PayoffTable(names, games, wins, counts, self.decay)

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON, for `from_state_dict`."""
        tables = {name: getattr(self, name).tolist() for name in ("games", "wins", "matches")}
        return {"players": list(self.players), **tables}

    @staticmethod
    def from_state_dict(state: Mapping[str, Any], decay: float) -> PayoffTable:
        """The table that `state_dict` gave."""
        n = len(state["players"])
        games, wins = (np.array(state[name], float).reshape(n, n) for name in ("games", "wins"))
        return PayoffTable(
            tuple(state["players"]), games, wins, np.array(state["matches"], np.int64).reshape(n, n), decay
        )

    def forget(self, player: str) -> PayoffTable:
        """The table without the results of one player, whose weights were reset."""
        games, wins, matches = self.games.copy(), self.wins.copy(), self.matches.copy()
        for table in (games, wins, matches):
            table[self._index[player], :] = table[:, self._index[player]] = 0
        return PayoffTable(self.players, games, wins, matches, self.decay)

    @cached_property
    def win_rates(self) -> np.ndarray:
        """P[player beats opponent] `[player, opponent]`; 0.5 where they have not met."""
        return np.divide(self.wins, self.games, out=np.full(self.games.shape, UNKNOWN), where=self.games > 0)

    def win_rate(self, player: str, opponent: str) -> float:
        """P[player beats opponent]; 0.5 if they have not met.

        Raises:
            ConfigError: one of them is not in the table.
        """
        return float(self.block((player,), (opponent,))[0, 0])

    def rates(self, player: str, opponents: Sequence[str], min_games: int = 1) -> np.ndarray:
        """P[player beats opponent] `[opponent]`; 0.5 where they have met less often than `min_games`."""
        rates = self.block((player,), opponents)[0]
        return rates if min_games <= 1 else np.where(self.has_met(player, opponents, min_games), rates, UNKNOWN)

    def block(self, rows: Sequence[str], columns: Sequence[str]) -> np.ndarray:
        """P[row beats column] `[row, column]`; 0.5 where they have not met."""
        return self.win_rates[self._at(rows, columns)]

    def counts(self, rows: Sequence[str], columns: Sequence[str]) -> np.ndarray:
        """Games of row and column, without decay `[row, column]`."""
        return self.matches[self._at(rows, columns)]

    def has_met(self, player: str, opponents: Sequence[str], min_games: int) -> np.ndarray:
        """Whether a player had at least so many games against each opponent `[opponent]`."""
        return self.counts((player,), opponents)[0] >= min_games

    def _at(self, rows: Sequence[str], columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        for name in (*rows, *columns):
            if name not in self._index:
                raise ConfigError(unknown("player in the payoff table", name, self.players))
        row, column = (np.array([self._index[name] for name in names], np.int64) for names in (rows, columns))
        return row[:, None], column[None]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.players)}


def _grown(table: np.ndarray, n: int) -> np.ndarray:
    """A copy with n rows and columns, the new ones 0."""
    grown = np.zeros((n, n), table.dtype)
    grown[: len(table), : len(table)] = table
    return grown

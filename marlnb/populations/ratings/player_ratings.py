"""PlayerRatings: the Elo of each player of a league, next to the share of the results that no rating can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from marlnb.display.formatting import count
from marlnb.display.notebook_html import frame_html, title_html
from marlnb.errors import ConfigError, unknown
from marlnb.populations.ratings.elo import Cycles, cycles, elo, elo_covariance

if TYPE_CHECKING:
    import pandas as pd

MAX_P = 0.05
NORMAL_QUANTILE = 1.96  # of a 95% interval
MAX_ROWS = 20


@dataclass(frozen=True, eq=False, repr=False)
class PlayerRatings:
    """Who is strongest, and whether that is a question with one answer.

    Attributes:
        players: their ids.
        elo: their ratings `[player]`, with a mean of 0; 400 more are odds of e to 1.
        games: of each player against others, without decay `[player]`. A rating of few games is close to 0.
        cycles: the part of the results that ratings cannot show, as in rock-paper-scissors.
        covariance: of the ratings `[player, player]`.
    """

    players: tuple[str, ...]
    elo: np.ndarray
    games: np.ndarray
    cycles: Cycles
    covariance: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def lead(self, first: str, second: str) -> tuple[float, float, float]:
        """How far a player's rating is above another's, with the ends of its 95% interval (normal approximation).

        Raises:
            ConfigError: there is no such player.
        """
        a, b = (self._index(name) for name in (first, second))
        difference = float(self.elo[a] - self.elo[b])
        error = np.sqrt(max(0.0, self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b]))
        margin = NORMAL_QUANTILE * float(error)
        return difference, difference - margin, difference + margin

    @property
    def verdict(self) -> str:
        """One sentence: who leads, whether that is clear, and how far Elo can be trusted."""
        if not self.games.any():
            return "No ratings yet: no two players have met."
        best, second = np.argsort(-np.where(self.games > 0, self.elo, -np.inf), kind="stable")[:2]
        share = f"{self.cycles.share:.0%} of the log-odds between players"
        if self.cycles.p_value >= MAX_P:
            cyclic = f"no sign of cycles ({share}, p = {self.cycles.p_value:.2g})"
        else:
            cyclic = f"but cycles make up {share} (p = {self.cycles.p_value:.2g}), which Elo cannot show"
        difference, low, high = self.lead(self.players[best], self.players[second])
        clear = "above" if low > 0 else "not separable from"
        return (
            f"Elo from {count(int(self.games.sum()) // 2, 'game')}: {self.players[best]} is highest with "
            f"{self.elo[best]:+.0f} ({count(int(self.games[best]), 'game')}), {clear} the next, {self.players[second]} "
            f"(difference {difference:+.0f} [{low:+.0f}, {high:+.0f}]); {cyclic}."
        )

    def _index(self, player: str) -> int:
        if player not in self.players:
            raise ConfigError(unknown("player in these ratings", player, self.players))
        return self.players.index(player)

    def table(self) -> pd.DataFrame:
        """player, elo and games, the strongest first."""
        import pandas as pd

        order = np.argsort(-self.elo, kind="stable")
        names = [self.players[k] for k in order]
        return pd.DataFrame({"player": names, "elo": self.elo[order], "games": self.games[order]})

    def __repr__(self) -> str:
        more = len(self.players) - MAX_ROWS
        rows = self.table().head(MAX_ROWS).to_string(index=False, float_format=lambda value: f"{value:+.0f}")
        return f"{self.verdict}\n{rows}" + (f"\n... and {more} more: table()" if more > 0 else "")

    def _repr_html_(self) -> str:
        return title_html(self.verdict) + frame_html(self.table(), index=False, max_rows=MAX_ROWS)


def rate(players: tuple[str, ...], wins: np.ndarray, games: np.ndarray, matches: np.ndarray) -> PlayerRatings:
    """The ratings of players.

    Args:
        players: their ids.
        wins: decayed number of wins and half of the draws `[player, opponent]`.
        games: decayed number of games `[player, opponent]`.
        matches: number of games without decay `[player, opponent]`; on the diagonal self-play, which says nothing.
    """
    n_games = (matches * (1 - np.eye(len(players), dtype=np.int64))).sum(1)
    if not n_games.any():
        return PlayerRatings(players, np.zeros(len(players)), n_games, Cycles(0.0, 1.0))
    ratings = elo(wins, games)
    return PlayerRatings(players, ratings, n_games, cycles(wins, games), elo_covariance(ratings, games))

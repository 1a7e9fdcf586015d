"""PlayerRatings: the Elo of each player of a league, next to the share of the results that no rating can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marlnb.display.formatting import count
from marlnb.display.notebook_html import frame_html, title_html
from marlnb.populations.ratings.elo import Cycles, cycles, elo

if TYPE_CHECKING:
    import pandas as pd

MAX_P = 0.05
MAX_ROWS = 20


@dataclass(frozen=True, eq=False, repr=False)
class PlayerRatings:
    """Who is strongest, and whether that is a question with one answer.

    Attributes:
        players: their ids.
        elo: their ratings `[player]`, with a mean of 0; 400 more are odds of e to 1.
        games: of each player against others, without decay `[player]`. A rating of few games is close to 0.
        cycles: the part of the results that ratings cannot show, as in rock-paper-scissors.
    """

    players: tuple[str, ...]
    elo: np.ndarray
    games: np.ndarray
    cycles: Cycles

    @property
    def verdict(self) -> str:
        """One sentence: who leads, and how far Elo can be trusted."""
        if not self.games.any():
            return "No ratings yet: no two players have met."
        best = int(np.argmax(np.where(self.games > 0, self.elo, -np.inf)))
        share = f"{self.cycles.share:.0%} of the log-odds between players"
        if self.cycles.p_value >= MAX_P:
            cyclic = f"no sign of cycles ({share}, p = {self.cycles.p_value:.2g})"
        else:
            cyclic = f"but cycles make up {share} (p = {self.cycles.p_value:.2g}), which Elo cannot show"
        return (
            f"Elo from {count(int(self.games.sum()) // 2, 'game')}: {self.players[best]} is highest with "
            f"{self.elo[best]:+.0f} ({count(int(self.games[best]), 'game')}); {cyclic}."
        )

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
    return PlayerRatings(players, elo(wins, games), n_games, cycles(wins, games))

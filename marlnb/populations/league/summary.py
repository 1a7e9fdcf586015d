"""LeagueSummary: a league at a glance, as text, in notebooks and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.display.formatting import count
from marlnb.display.notebook_html import frame_html, joined, note_html, title_html
from marlnb.populations.league.matches import Match, count_by_kind
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.player_log import PlayerEvent, players_after
from marlnb.populations.league.players import SNAPSHOT_MARK, Player
from marlnb.populations.ratings.player_ratings import PlayerRatings, rate

WIN_RATES = "win rates of learning players; @* are the snapshots of a player together"


COLUMNS = ("player", "role", "side", "state", "frames", "snapshots", "elo", "games")


@dataclass(frozen=True, eq=False, repr=False)
class LeagueSummary:
    """A league at a glance.

    Attributes:
        title: kind of league, its run, and how far it is.
        players: a line for each learning, frozen or retired player, numbered from 1: player, role, side, state,
            frames that it has learned from, snapshots, elo and games.
        matches: number of matches of each kind, a line for each player among whose episodes they were.
        win_rates: of each learning player (line) against each other player, and against the snapshots of each; NaN:
            they have not met.
        ratings: of all players and snapshots.
    """

    title: str
    players: pd.DataFrame
    matches: pd.DataFrame
    win_rates: pd.DataFrame
    ratings: PlayerRatings

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by title, without those that have no lines yet; columns of win rates have players' numbers."""
        numbers = {name: f"#{number}" for number, name in self.players["player"].items()}
        columns = {}
        for column in self.win_rates.columns:
            player, mark, rest = column.partition(SNAPSHOT_MARK)
            columns[column] = numbers[player] + mark + rest
        tables = {
            "players": self.players,
            "matches by kind": self.matches,
            WIN_RATES: self.win_rates.rename(columns=columns),
        }
        return {title: table for title, table in tables.items() if not table.empty}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, with None where two players have not met."""
        rates = self.win_rates.astype(object).where(self.win_rates.notna(), None)
        return {
            "title": self.title,
            "players": self.players.to_dict("records"),
            "matches": {str(name): row for name, row in self.matches.to_dict("index").items()},
            "win_rates": {str(name): row for name, row in rates.to_dict("index").items()},
            "cyclic_share": self.ratings.cycles.share,
            "cyclic_p": self.ratings.cycles.p_value,
        }

    def __repr__(self) -> str:
        texts = [f"{title}\n{_text(table)}" for title, table in self.tables.items()]
        return "\n\n".join([f"{self.title}\n{self.ratings.verdict}", *texts])

    def _repr_html_(self) -> str:
        tables = joined(note_html(title) + frame_html(table, digits=2) for title, table in self.tables.items())
        return title_html(self.title) + title_html(self.ratings.verdict) + tables


def rate_players(payoff: PayoffTable) -> PlayerRatings:
    """The ratings of all players of a table."""
    return rate(payoff.players, payoff.wins, payoff.games, payoff.matches)


def summarise(
    name: str,
    events: Sequence[PlayerEvent],
    matches: Sequence[Match],
    payoff: PayoffTable,
    frames: Mapping[str, int],
) -> LeagueSummary:
    """The summary of a league.

    Args:
        name: of the league, for the title.
        events: lines of `players.jsonl`.
        matches: lines of `matches.jsonl`.
        payoff: the table of these matches.
        frames: that each player has learned from.
    """
    known = players_after(event for event in events if event.event != "retired")
    playing, ratings = players_after(events), rate_players(payoff)
    rating = dict(zip(payoff.players, ratings.elo.round().astype(int).tolist()))
    n_games = dict(zip(payoff.players, ratings.games.tolist()))
    players, snapshots = [[p for p in known.values() if p.is_snapshot is wanted] for wanted in (False, True)]
    copies = {player.id: [other.id for other in snapshots if other.parent == player.id] for player in players}
    rows = [
        {
            "player": player.id,
            "role": player.role,
            "side": player.side or "any",
            "state": _state(player, playing),
            "frames": frames.get(player.id, 0),
            "snapshots": len(copies[player.id]),
            "elo": rating.get(player.id, 0),
            "games": n_games.get(player.id, 0),
        }
        for player in players
    ]
    n_rounds = max((match.round for match in matches), default=-1) + 1
    played = f"{len(matches):,} matches in {count(n_rounds, 'round')}" if matches else "no match has ended yet"
    title = f"{name}: {count(len(players), 'player')}, {count(len(snapshots), 'snapshot')}, {played}"
    pools = {player.id: [player.id] for player in players}
    pools |= {f"{player}{SNAPSHOT_MARK}*": of_player for player, of_player in copies.items()}
    table = pd.DataFrame(rows, columns=COLUMNS, index=pd.RangeIndex(1, len(rows) + 1, name="#"))
    win_rates = pooled_win_rates(payoff, [player.id for player in players if player.id in playing], pools)
    return LeagueSummary(title, table, counts_table(count_by_kind(matches)), win_rates, ratings)


def pooled_win_rates(payoff: PayoffTable, players: Sequence[str], pools: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The win rate of each player (line) against each pool of players (column), NaN where they have not met.

    Pools that no player has met are left out; a player in its own pool does not count.
    """
    index = {name: k for k, name in enumerate(payoff.players)}
    rates = pd.DataFrame(index=pd.Index(players, name="player"), columns=list(pools), dtype=float)
    for player in players:
        for name, pool in pools.items() if player in index else ():
            others = [index[other] for other in pool if other != player and other in index]
            games = payoff.games[index[player], others].sum()
            if games > 0:
                rates.loc[player, name] = payoff.wins[index[player], others].sum() / games
    return rates.dropna(axis="columns", how="all")


def counts_table(counts: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """`counts[player][kind]` as a table with a line for each player."""
    return pd.DataFrame.from_dict(counts, orient="index").fillna(0).astype(np.int64).rename_axis("player")


def _state(player: Player, playing: Mapping[str, Player]) -> str:
    if player.id not in playing:
        return "retired"
    return "learning" if player.learning else "frozen"


def _text(table: pd.DataFrame) -> str:
    return table.reset_index().to_string(index=False, float_format=lambda value: f"{value:.2f}", na_rep="–")

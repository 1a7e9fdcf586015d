"""A league: who meets whom, who beats whom, ratings over time and the snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import AnalysisError
from marlnb.plots.canvas import (
    INK,
    OKABE_ITO,
    axes,
    count_in_whole_numbers,
    finish,
    heat_map,
    legend_outside,
    line_style,
    panels,
    width_with_legend,
)
from marlnb.populations.league.player_log import What
from marlnb.populations.league.rating_history import evenly, ratings_over_rounds

if TYPE_CHECKING:
    from marlnb.populations.run_league import RunLeague

MAX_PLAYERS = MAX_WRITTEN = 24
EVENTS: dict[What, tuple[str, str, str, float]] = {
    "snapshot": ("o", OKABE_ITO[0], "snapshot", 0.0),
    "reset": ("^", OKABE_ITO[5], "reset to fresh weights", 0.25),
    "frozen": ("s", OKABE_ITO[2], "frozen", 0.0),
    "retired": ("v", OKABE_ITO[6], "retired", 0.0),
}
"""Marker, colour, label and position below the player's line of what happens to a player."""


def match_counts(league: RunLeague, *, title: str = "Matches by kind", ax: Axes | None = None) -> Axes:
    """How many matches of each kind each learning player had, as stacked bars."""
    counts = league.counts()
    _check(bool(counts), league)
    players = list(counts)
    kinds = list(dict.fromkeys(kind for row in counts.values() for kind in row))
    ax = axes(ax, width=width_with_legend(kinds), height=1.6 + 0.4 * len(players))
    left = np.zeros(len(players))
    for index, kind in enumerate(kinds):
        values = np.array([counts[player].get(kind, 0) for player in players], dtype=float)
        colour = OKABE_ITO[index % len(OKABE_ITO)]
        ax.barh(players, values, left=left, color=colour, edgecolor="white", label=kind.replace("_", " "))
        left += values
    ax.invert_yaxis()
    legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    return finish(ax, title=title, x="matches", y="", grid="x")


def payoff_map(
    league: RunLeague,
    rows: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    *,
    title: str = "Who beats whom?",
    ax: Axes | None = None,
) -> Axes:
    """The win rate of each row against each column; grey: they have not met since the last reset of either.

    Rates are written into the cells of at most MAX_WRITTEN columns.

    Args:
        rows: an id or several; None: the learning and frozen players.
        columns: an id or several; None: the same and their snapshots, evenly thinned to MAX_PLAYERS; the
            figure says how many of the snapshots it shows.
    """
    payoff = league.payoff()
    _check(bool(payoff.games.any()), league)
    players = [name for name in league.players if name in league.history.playing]
    rows, columns = ([names] if isinstance(names, str) else names for names in (rows, columns))
    rows = players if rows is None else list(rows)
    note = ""
    if columns is None:
        columns = _thinned(league, MAX_PLAYERS)
        snapshots = {each.id for name in players for each in league[name].snapshots}
        if hidden := snapshots - set(columns):
            note = f"{len(snapshots) - len(hidden)} of {len(snapshots)} snapshots; columns= chooses others"
    cells = np.ix_(*([payoff.players.index(league[name].id) for name in names] for names in (rows, columns)))
    values = np.where(payoff.games[cells] > 0, payoff.win_rates[cells], np.nan)
    text = np.where(np.isnan(values), "", np.char.mod("%.2f", values)) if len(columns) <= MAX_WRITTEN else None
    ax = axes(ax, width=3.6 + 0.42 * len(columns), height=2.2 + 0.42 * len(rows))
    label = "win rate of the row"
    heat_map(ax, values, rows=rows, columns=columns, label=label, text=text, low=0, high=1, cmap="PuOr", font_size=7.5)
    return finish(ax, title=title, x=note, y="", grid="")


def ratings_over_time(league: RunLeague, *, title: str = "Ratings over time") -> list[Axes]:
    """Left the Elo of each player, right the cyclic share, which Elo cannot show."""
    matches = league.matches()
    _check(bool(matches), league)
    by_frames = bool(league.config.learner)
    history = list(ratings_over_rounds(matches, league.events(), league.config.decay, by_frames=by_frames))
    left, right = panels(2, width=2.5 + width_with_legend(league.players) / 2)
    x = [point.round for point in history]
    for number, player in enumerate(league.players):
        elo = [point.elo.get(player, np.nan) for point in history]
        left.plot(x, elo, label=player, **line_style(number) | {"markersize": 4.5})
    legend_outside(left)
    right.plot(x, [point.cyclic_share for point in history], color=INK, marker="o", markersize=4.5)
    right.set_ylim(-0.03, 1.03)
    finish(right, title="What Elo cannot show", x="round of the league", y="cyclic share of the log-odds")
    finish(left, title=title, x="round of the league", y="Elo (mean of all players: 0)")
    count_in_whole_numbers(left.xaxis, right.xaxis)
    return [left, right]


def snapshot_timeline(league: RunLeague, *, title: str = "Snapshots", ax: Axes | None = None) -> Axes:
    """When each player got a snapshot, was reset, frozen or retired, by the frames that it had learned from."""
    players = list(league.players)
    ax = axes(ax, width=8.2, height=1.6 + 0.4 * len(players))
    drawn: dict[What, tuple[list[int], list[float]]] = {}
    for event in league.events():
        owner = event.parent if event.event == "snapshot" else event.player
        if event.event in EVENTS and owner in players:
            x, y = drawn.setdefault(event.event, ([], []))
            x.append(event.frames)
            y.append(players.index(owner) + EVENTS[event.event][3])
    for what, (x, y) in drawn.items():
        marker, colour, label, _ = EVENTS[what]
        ax.scatter(x, y, marker=marker, color=colour, s=30, label=label, zorder=3, linewidths=0)
    ax.set_yticks(range(len(players)), players)
    ax.set_ylim(len(players) - 0.5, -0.5)
    legend_outside(ax)
    return finish(ax, title=title, x="frames that the player has learned from", y="", grid="x")


def _thinned(league: RunLeague, n: int) -> list[str]:
    """The players, and as many of the snapshots of each as there is room for."""
    playing = league.history.playing
    players = {name: league[name] for name in league.players if name in playing}
    counts = [len(player.snapshots) for player in players.values()]
    room = n - len(players)
    # the largest number for which all fit: what players with few snapshots leave is for the others
    per_player = max((k for k in range(1, n) if sum(min(k, count) for count in counts) <= room), default=1)
    names = []
    for name, player in players.items():
        snapshots = [each.id for each in player.snapshots]
        names += [*(snapshots[k] for k in evenly(range(len(snapshots)), per_player)), name]
    return names


def _check(is_there: bool, league: RunLeague) -> None:
    if not is_there:
        raise AnalysisError(f"nothing to draw yet: no match has ended in the league of {league.run.shown_path}")

"""A league next to its control: the measures with their intervals, and the ratings of all players."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, MUTED, OKABE_ITO, finish, panels

if TYPE_CHECKING:
    from marlnb.analysis.populations.league_report_result import LeagueReport

MAX_PLAYERS = 16
COLOURS = {"better": OKABE_ITO[2], "worse": OKABE_ITO[5]}


def league_report_figure(report: LeagueReport, *, title: str = "Did the league help?") -> list[Axes]:
    """Left each measure as a difference from what equal populations have; then Elo, and the shares without Elo.

    Every point is a seed, and the bar the 95% interval of the mean over seeds; rows have different units, so each has
    its own scale. Ratings are means over seeds of the
    players with the largest shares.
    """
    table = report.ratings().head(MAX_PLAYERS)
    left, middle, right = panels(3, width=5.6, height=1.6 + max(2.0, 0.28 * len(table), 0.7 * len(report.measures)))
    names = []
    for row, measure in enumerate(report.measures):
        sign = 1 if measure.higher_is_better else -1
        ends = [] if measure.low is None or measure.high is None else [measure.low, measure.high]
        all_values = np.array([*measure.values, measure.mean, *ends]) - measure.reference
        differences = sign * all_values / (np.abs(all_values).max() or 1.0)
        n = len(measure.values)
        colour = COLOURS.get(measure.verdict, MUTED)
        left.plot(differences[:n], [row] * n, "o", color=colour, alpha=0.5, markersize=4.5)
        left.plot(differences[n + 1 :], [row] * len(ends), color=colour, linewidth=2.5)
        left.plot(differences[n], row, "D", color=colour)
        names.append("\n".join(textwrap.wrap(measure.text, 40)))
    left.axvline(0, color=INK, linewidth=0.8)
    left.set_yticks(range(len(names)), names, fontsize=8)
    left.set_ylim(len(names) - 0.5, -0.5)
    y = np.arange(len(table))
    is_control = table["player"].str.startswith("control/").to_numpy()
    middle.barh(y, table["elo"], color=np.where(is_control, MUTED, OKABE_ITO[0]))
    right.barh(y - 0.2, table["nash"], height=0.38, color=OKABE_ITO[0], label="Nash averaging")
    right.barh(y + 0.2, table["alpha_rank"], height=0.38, color=OKABE_ITO[1], label="alpha-rank")
    for each in (middle, right):
        each.set_yticks(y, table["player"], fontsize=8)
        each.set_ylim(len(table) - 0.5, -0.5)
    right.legend(fontsize=8, frameon=False)
    cyclic = report.players.groupby("seed")["cyclic_share"].first().mean()
    seeds = f"{report.n_seeds} seeds" if report.n_seeds != 1 else "one seed"
    finish(
        left, title=title, x=f"the league is better →\n({seeds}; each row to its own scale)", y="", grid="x",
        warnings=report.warnings,
    )  # fmt: skip
    finish(middle, title=f"Elo; it misses {cyclic:.0%} (cycles)", x="Elo (grey: control)", y="", grid="x")
    finish(right, title="Shares that cycles do not fool", x="share of the mixture", y="", grid="x")
    return [left, middle, right]

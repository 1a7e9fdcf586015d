"""Runs as points: near each other where their agents' units are alike, coloured by return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, MUTED, axes, finish, label_colour_bar

if TYPE_CHECKING:
    from marlnb.analysis.representations.run_map_result import RunMap


def run_map_figure(run_map: RunMap, *, title: str = "Runs by what they represent", ax: Axes | None = None) -> Axes:
    """The positions of `mnb.run_map`, with a line between the two runs of equal return that differ most.

    A run without a return is a hollow point.
    """
    ax = axes(ax, width=6.4)
    pair = run_map.most_different
    if pair is not None:
        ends = run_map.positions[[run_map.runs.index(name) for name in pair]]
        ax.plot(*ends.T, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    known, (x, y) = np.isfinite(run_map.returns), run_map.positions.T
    points = ax.scatter(x[known], y[known], c=run_map.returns[known], cmap="viridis", s=70, edgecolor="white", zorder=2)
    ax.scatter(x[~known], y[~known], s=70, facecolor="white", edgecolor=MUTED, linewidth=1.2, zorder=2)
    for name, position, has_return in zip(run_map.runs, run_map.positions, known):
        text = name if has_return else f"{name} (no return)"
        ax.annotate(text, position, (6, 5), textcoords="offset points", fontsize=8.5, color=INK)
    if known.any():
        figure = ax.get_figure(root=True)
        assert figure is not None
        label_colour_bar(figure.colorbar(points, ax=ax), "return per agent and episode (reward)")
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.15)
    note = f"distance √(2 − 2 CKA); two dimensions show {run_map.explained:.0%} of it"
    return finish(
        ax,
        title=title,
        x=f"{run_map.agent} {run_map.site}: {note}",
        y="",
        warnings=run_map.warnings,
    )

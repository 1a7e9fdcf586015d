"""Runs as points: near each other where their agents' units are alike, coloured by return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, MUTED, axes, finish

if TYPE_CHECKING:
    from marlnb.analysis.representations.run_map_result import RunMap


def run_map_figure(run_map: RunMap, *, title: str = "Runs by what they represent", ax: Axes | None = None) -> Axes:
    """The positions of `mnb.run_map`, with a line between the two runs of equal return that differ most."""
    ax = axes(ax, width=6.4)
    pair = run_map.most_different
    if pair is not None:
        ends = run_map.positions[[run_map.runs.index(name) for name in pair]]
        ax.plot(*ends.T, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    points = ax.scatter(
        run_map.positions[:, 0],
        run_map.positions[:, 1],
        c=run_map.returns,
        cmap="viridis",
        s=70,
        edgecolor="white",
        zorder=2,
    )
    for name, position in zip(run_map.runs, run_map.positions):
        ax.annotate(name, position, (6, 5), textcoords="offset points", fontsize=8.5, color=INK)
    if np.isfinite(run_map.returns).any():
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.colorbar(points, ax=ax, label="return per agent and episode (reward)")
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

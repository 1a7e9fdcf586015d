"""Runs as points: near each other where their agents' units are alike, coloured by return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, MUTED, axes, finish, label_colour_bar, legend_outside, width_with_legend

if TYPE_CHECKING:
    from marlnb.analysis.representations.run_map_result import RunMap

COLOUR_BAR_IN = 0.8
"""Width of the colour bar with its labels."""
OVERLAP = 0.06
"""Distance, as a share of the map's width, below which the numbers of points would cover each other."""


def run_map_figure(run_map: RunMap, *, title: str = "Runs by what they represent", ax: Axes | None = None) -> Axes:
    """The positions of `mnb.run_map`, with a line between the two runs of equal return that differ most.

    Runs have numbers, and the legend their names. A run without a return is a hollow point.
    """
    known, (x, y) = np.isfinite(run_map.returns), run_map.positions.T
    names = [
        f"{number}: {name}{'' if has_return else ' (no return)'}"
        for number, (name, has_return) in enumerate(zip(run_map.runs, known), start=1)
    ]
    ax = axes(ax, width=COLOUR_BAR_IN + width_with_legend(names))
    pair = run_map.most_different
    if pair is not None:
        ends = run_map.positions[[run_map.runs.index(name) for name in pair]]
        ax.plot(*ends.T, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    points = ax.scatter(x[known], y[known], c=run_map.returns[known], cmap="viridis", s=70, edgecolor="white", zorder=2)
    ax.scatter(x[~known], y[~known], s=70, facecolor="white", edgecolor=MUTED, linewidth=1.2, zorder=2)
    for (across, up), numbers in _numbers(run_map.positions):
        text = ", ".join(map(str, numbers))
        ax.annotate(text, (across, up), (6, 5), textcoords="offset points", fontsize=8.5, color=INK)
    figure = ax.get_figure(root=True)
    assert figure is not None
    if known.any():  # before the legend: a colour bar extends the range of equal returns
        label_colour_bar(figure.colorbar(points, ax=ax), f"{run_map.mode} return per agent and episode (reward)")
    for name, colour, has_return in zip(names, points.to_rgba(run_map.returns), known):
        ax.plot([], [], "o", label=name, **({"color": colour} if has_return else {"color": "white", "mec": MUTED}))
    legend_outside(ax)
    ax.locator_params(axis="x", nbins=5)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.15)
    note = f"distance √(2 − 2 CKA); two dimensions show {run_map.explained:.0%} of it"
    return finish(
        ax,
        title=title,
        x=f"{run_map.agent} {run_map.site}\n{note}",
        y="",
        warnings=run_map.warnings,
    )


def _numbers(positions: np.ndarray) -> list[tuple[np.ndarray, list[int]]]:
    """Positions `[2]` of points, and the numbers of the points there: those of points that overlap are together."""
    groups: list[tuple[np.ndarray, list[int]]] = []
    radius = OVERLAP * np.ptp(positions, axis=0).max()
    for number, position in enumerate(positions, start=1):
        near = [numbers for other, numbers in groups if np.linalg.norm(position - other) <= radius]
        if near:
            near[0].append(number)
        else:
            groups.append((position, [number]))
    return groups

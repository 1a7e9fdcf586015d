"""What several figures draw into their axes: bars with intervals, numbers above bars, curves with bands."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from marlnb.plots.canvas import INK, line_style


def bar_with_interval(ax: Axes, x: float, value: float, low: float, high: float, colour: str, *, width: float) -> None:
    """Draws a bar with an error bar from `low` to `high`; a side on which the value is outside is left out."""
    ax.bar(x, value, width=width, color=colour, edgecolor=INK, linewidth=0.8)
    ax.errorbar(x, value, [[max(value - low, 0.0)], [max(high - value, 0.0)]], color=INK, capsize=4)


def write_number(ax: Axes, x: float, y: float, text: str, *, below: bool = False) -> None:
    """Writes a number above (or below) the end of a bar, on white, so that no line strikes it through."""
    ax.annotate(
        text, (x, y), (0, -3 if below else 3), textcoords="offset points", ha="center", va="top" if below else "bottom",
        fontsize=9, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def draw_band(
    ax: Axes,
    x: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    colour: str,
    alpha: float = 0.2,
    label: str | None = None,
) -> None:
    """Fills the intervals of a curve; that of a point without neighbours is a bar, since a band has no width there."""
    x, low, high = (np.asarray(values, dtype=float) for values in (x, low, high))
    ax.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, label=label)
    isolated = isolated_points(low + high)
    if isolated.size:
        ax.vlines(x[isolated], low[isolated], high[isolated], color=colour, linewidth=1.6, alpha=0.7)


def level_marker(x: ArrayLike) -> dict[str, Any]:
    """Options of a line without markers: a short stroke if it has one point only, which would be invisible."""
    return {"marker": "_", "markersize": 16, "markeredgewidth": 2} if np.size(x) == 1 else {}


def isolated_points(values: np.ndarray) -> np.ndarray:
    """Indices `[point]` of finite values whose neighbours, if any, are missing."""
    known = np.concatenate([[False], np.isfinite(values), [False]])
    return np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])


def mean_with_middle_half(
    ax: Axes, t: np.ndarray, values: np.ndarray, *, index: int, colour: str, label: str, **line: Any
) -> np.ndarray:
    """Draws the mean over rows at each time step, and a band from the first to the third quartile.

    A step of which no row is finite is a gap: an agent that did not act has no value there.

    Args:
        t: `[row]`, the time step of each row.
        values: `[row]`.
        index: of the line in the figure; decides its dashes and its marker.
        line: more options of matplotlib's `Axes.plot`.
    Returns:
        The means, one for each distinct step.
    """
    steps = np.unique(t)
    low, mean, high = np.full((3, len(steps)), np.nan)
    for k, step in enumerate(steps):
        rows = values[t == step]
        rows = rows[np.isfinite(rows)]
        if rows.size:
            low[k], high[k] = np.quantile(rows, [0.25, 0.75])
            mean[k] = rows.mean()
    draw_band(ax, steps, low, high, colour=colour, alpha=0.15)
    style = line_style(index) | {"color": colour, "markersize": 4.5, "linewidth": 1.8, "label": label}
    ax.plot(steps, mean, **style | line)
    return mean

"""Intervals and control lines along a curve that stay visible where it has one point only."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike


def interval_band(
    ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, *, alpha: float, label: str | None = None
) -> None:
    """Draws the intervals of a curve as a band; where a point has no neighbours, a band has no width: as a wide bar.

    Args:
        x: `[point]`, ascending.
        low: `[point]`; NaN where there is no interval.
        high: `[point]`.
    """
    x, low, high = (np.asarray(values, dtype=float) for values in (x, low, high))
    ax.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, label=label)
    drawn = np.pad(np.isfinite(high - low), 1)
    alone = drawn[1:-1] & ~drawn[:-2] & ~drawn[2:]
    ax.vlines(x[alone], low[alone], high[alone], color=colour, alpha=alpha, linewidth=10)


def level_marker(x: ArrayLike) -> dict[str, Any]:
    """Options of a line without markers: a short stroke if it has one point only, which would be invisible."""
    return {"marker": "_", "markersize": 16, "markeredgewidth": 2} if np.size(x) == 1 else {}

"""What a sweep came to: each setting's runs as points, beside an estimate of where such runs lie."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.benchmark import Estimate
from marlnb.plots.canvas import INK, OKABE_ITO, axes, finish, literal

LONGEST = 44  # letters in a line of a setting's name


def setting_scores(
    estimates: Mapping[str, Estimate],
    points: Mapping[str, Sequence[float]],
    *,
    x: str = "return per agent and episode (reward)",
    title: str = "Final scores",
    note: str = "bar: IQM, box: its 95% bootstrap interval, points: runs",
    ax: Axes | None = None,
) -> Axes:
    """One row a setting: its runs' values as points, the estimate as a bar, its interval as a box.

    Args:
        estimates: by setting; the interval of one that has a single run is NaN and not drawn.
        points: by setting, the value of each of its runs.
    """
    names = list(estimates)
    told = [literal(textwrap.fill(name, LONGEST)) for name in names]
    lines, longest = max(text.count("\n") + 1 for text in told), max(len(line) for t in told for line in t.split("\n"))
    ax = axes(ax, width=5.6 + 0.07 * longest, height=1.6 + max(0.45, 0.2 * lines) * len(names))
    for row, name in enumerate(names):
        estimate, colour = estimates[name], OKABE_ITO[row % len(OKABE_ITO)]
        if np.isfinite([estimate.low, estimate.high]).all():
            ax.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.55, color=colour, alpha=0.3)
        ax.plot([estimate.value] * 2, [row - 0.275, row + 0.275], color=colour, linewidth=3, solid_capstyle="butt")
        ax.plot(points[name], [row] * len(points[name]), "o", color=colour, markersize=5, markeredgecolor=INK)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), told)
    ax.use_sticky_edges = False
    ax.margins(x=0.08)
    finish(ax, title=literal(title), x=f"{x}\n{note}", y="", grid="x")
    ax.tick_params(axis="y", length=0)
    return ax

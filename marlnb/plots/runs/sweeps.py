"""Results of a sweep: the runs of each setting as points, and an estimate with its interval."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, OKABE_ITO, axes, finish

if TYPE_CHECKING:
    from marlnb.analysis.benchmarking.statistics import Estimate

MAX_NAME_LENGTH = 44  # letters in a line of a setting's name


def setting_scores(
    estimates: Mapping[str, Estimate],
    points: Mapping[str, Sequence[float]],
    *,
    x: str = "return per agent and episode (reward)",
    title: str = "Final scores",
    note: str = "bar: IQM, box: its 95% bootstrap interval, points: runs",
    ax: Axes | None = None,
) -> Axes:
    """One row per setting: the values of its runs as points, the estimate as a bar, the interval as a box.

    Args:
        estimates: by setting. A setting with a single run has a NaN interval, which is not drawn.
        points: by setting, the value of each of its runs.
    """
    names = list(estimates)
    labels = [textwrap.fill(name, MAX_NAME_LENGTH) for name in names]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    n_lines = max(label.count("\n") + 1 for label in labels)
    ax = axes(ax, width=5.6 + 0.07 * longest, height=1.6 + max(0.45, 0.2 * n_lines) * len(names))
    for row, name in enumerate(names):
        estimate, colour = estimates[name], OKABE_ITO[row % len(OKABE_ITO)]
        if np.isfinite([estimate.low, estimate.high]).all():
            ax.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.55, color=colour, alpha=0.3)
        ax.plot([estimate.value] * 2, [row - 0.275, row + 0.275], color=colour, linewidth=3, solid_capstyle="butt")
        ax.plot(points[name], [row] * len(points[name]), "o", color=colour, markersize=5, markeredgecolor=INK)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), labels)
    ax.use_sticky_edges = False
    ax.margins(x=0.08)
    ax.tick_params(axis="y", length=0)
    return finish(ax, title=title, x=f"{x}\n{note}", y="", grid="x")

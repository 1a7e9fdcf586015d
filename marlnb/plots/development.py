"""What developed when and where in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import DASHES, MARKERS, MUTED, OKABE_ITO, alarm, axes, finish, heat_map, legend_outside

if TYPE_CHECKING:
    from marlnb.analysis.representations.development_result import Development


def development_map(development: Development, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The score of each site at each checkpoint: when along x, where along y."""
    values = development.values
    n_sites, n_checkpoints = values.shape
    columns = [str(int(iteration)) for iteration in development.iterations]
    ax = axes(ax, width=3.6 + 0.7 * n_checkpoints, height=2.0 + 0.5 * n_sites)
    heat_map(ax, values, rows=development.sites, columns=columns, low=min(0.0, float(np.nanmin(values))), high=1,
             text=np.vectorize("{:.2f}".format)(values), label=development.what)  # fmt: skip
    finish(ax, title=title or "What, when and where", x="checkpoint (iteration)", y="", grid="")
    alarm(ax, development.warnings)
    return ax


def development_curves(development: Development, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The same scores as lines with 95% bands; the control of the last site is dotted."""
    ax = axes(ax, width=8.6)
    iterations = development.iterations
    for k, name in enumerate(development.sites):
        colour, dash = OKABE_ITO[k % len(OKABE_ITO)], DASHES[k % len(DASHES)]
        marker = MARKERS[k % len(MARKERS)]
        ax.fill_between(iterations, development.low[k], development.high[k], color=colour, alpha=0.18, linewidth=0)
        ax.plot(iterations, development.values[k], color=colour, linestyle=dash, marker=marker, label=name)  # type: ignore[arg-type]
    dots, name = (0, (1.2, 1.4)), development.control_name
    ax.plot(iterations, development.control[-1], color=MUTED, linestyle=dots, linewidth=2, label=name)
    legend_outside(ax)
    finish(ax, title=title or "When did it develop?", x="checkpoint (iteration)", y=development.what)
    alarm(ax, development.warnings)
    return ax

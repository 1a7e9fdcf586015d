"""What developed when and where in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import (
    MIN_COLUMN,
    MIN_WRITTEN_COLUMN,
    MUTED,
    axes,
    count_in_whole_numbers,
    finish,
    heat_map,
    legend_outside,
    line_style,
    width_of_columns,
)
from marlnb.plots.marks import draw_band, level_marker

if TYPE_CHECKING:
    from marlnb.analysis.representations.development_result import Development


def development_map(development: Development, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The score of each site at each checkpoint: when along x, where along y."""
    values = development.values
    n_sites, n_checkpoints = values.shape
    columns = [str(int(iteration)) for iteration in development.iterations]
    width = width_of_columns(n_checkpoints, 0.7, narrowest=MIN_COLUMN)
    text = np.vectorize("{:.2f}".format)(values) if width / n_checkpoints >= MIN_WRITTEN_COLUMN else None
    ax = axes(ax, width=3.6 + width, height=2.0 + 0.5 * n_sites)
    low = min(0.0, float(np.nanmin(values)))
    heat_map(ax, values, rows=development.sites, columns=columns, low=low, high=1, text=text, label=development.what)
    heading = title or "What, when and where"
    return finish(ax, title=heading, x="checkpoint (iteration)", y="", grid="", warnings=development.warnings)


def development_curves(development: Development, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The same scores as lines with 95% bands; each site's controls are dotted and dashed lines in its colour.

    A control that is the same for all sites is grey.
    """
    ax = axes(ax, width=8.6)
    iterations = development.iterations
    for k, name in enumerate(development.sites):
        style, low, high = line_style(k), development.low[k], development.high[k]
        draw_band(ax, iterations, low, high, colour=style["color"], alpha=0.18)
        ax.plot(iterations, development.values[k], label=name, **style)
    _controls(ax, iterations, development.control, development.control_name, linestyle=(0, (1.2, 1.4)), linewidth=2)
    _controls(ax, iterations, development.untrained, "untrained network", linestyle="--", linewidth=1)
    legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    heading, up = title or "When did it develop?", development.what
    return finish(ax, title=heading, x="checkpoint (iteration)", y=up, warnings=development.warnings)


def _controls(ax: Axes, iterations: np.ndarray, values: np.ndarray, name: str, **line: Any) -> None:
    """Draws one control of all sites, `[site, checkpoint]`; nothing if there is none."""
    if not np.isfinite(values).any():
        return
    line |= level_marker(iterations)
    if np.allclose(values, values[0], equal_nan=True):
        ax.plot(iterations, values[0], color=MUTED, label=name, **line)
        return
    for k, of_site in enumerate(values):
        ax.plot(iterations, of_site, color=line_style(k)["color"], **line)
    ax.plot([], [], color=MUTED, label=f"{name}\n(in the colour of its site)", **line)

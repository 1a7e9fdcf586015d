"""What, when and where in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import DASHES, INK, MARKERS, MUTED, OKABE_ITO, SEQUENTIAL, alarm, axes, finish, legend_beside


class DevelopmentResult(Protocol):
    """values, low, high, control `[place, checkpoint]`; returns by group `[checkpoint]`."""

    @property
    def what(self) -> str: ...
    @property
    def places(self) -> tuple[str, ...]: ...
    @property
    def iterations(self) -> np.ndarray: ...
    @property
    def values(self) -> np.ndarray: ...
    @property
    def low(self) -> np.ndarray: ...
    @property
    def high(self) -> np.ndarray: ...
    @property
    def control(self) -> np.ndarray: ...
    @property
    def control_name(self) -> str: ...
    @property
    def returns(self) -> Mapping[str, np.ndarray]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def what_when_where(development: DevelopmentResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The score of each place at each checkpoint, as a map: when along x, where along y."""
    found = development
    n_places, n_checkpoints = found.values.shape
    ax = axes(ax, width=3.6 + 0.7 * n_checkpoints, height=2.0 + 0.5 * n_places)
    low = min(0.0, float(np.nanmin(found.values)))
    image = ax.imshow(found.values, cmap=SEQUENTIAL, vmin=low, vmax=1, aspect="auto")
    for i in range(n_places):
        for j in range(n_checkpoints):
            value = found.values[i, j]
            colour = "white" if value < low + 0.55 * (1 - low) else INK
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8.5, color=colour)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(found.what, color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
    ax.set_xticks(range(n_checkpoints), [str(int(k)) for k in found.iterations])
    ax.set_yticks(range(n_places), list(found.places), fontsize=8.5)
    finish(ax, title=title or "What, when and where", x="checkpoint (iteration)", y="", grid="")
    alarm(ax, found.warnings)
    return ax


def development_curves(development: DevelopmentResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The same as lines with 95% bands; the control of the last place is dotted."""
    found = development
    ax = axes(ax, width=8.6)
    for k, place in enumerate(found.places):
        colour, dash = OKABE_ITO[k % len(OKABE_ITO)], DASHES[k % len(DASHES)]
        ax.fill_between(found.iterations, found.low[k], found.high[k], color=colour, alpha=0.18, linewidth=0)
        marker = MARKERS[k % len(MARKERS)]
        ax.plot(found.iterations, found.values[k], color=colour, linestyle=dash, marker=marker, label=place)  # type: ignore[arg-type]
    ax.plot(
        found.iterations,
        found.control[-1],
        color=MUTED,
        linestyle=(0, (1.2, 1.4)),
        linewidth=2,
        label=found.control_name,
    )
    legend_beside(ax)
    finish(ax, title=title or "When did it come?", x="checkpoint (iteration)", y=found.what)
    alarm(ax, found.warnings)
    return ax

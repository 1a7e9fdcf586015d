"""Maps of units in two dimensions."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import ShapeError
from marlnb.plots.canvas import INK, MARKERS, OKABE_ITO, SEQUENTIAL, agent_colour, alarm, axes, finish, legend_beside

LIKE_THEIR_NAMES = {"blue": OKABE_ITO[0], "green": OKABE_ITO[2], "red": OKABE_ITO[5], "black": OKABE_ITO[6]}
"""For classes that are called by colours: nobody wants to read of red points that are drawn blue."""

MOST_CLASSES = 16
"""More, of values without names, are drawn as a quantity is."""


class EmbeddingResult(Protocol):
    """points `[point, dimension]` with a label `color` `[point]` (NaN: unknown) and whose they are, `who` `[point]`."""

    @property
    def method(self) -> str: ...
    @property
    def site(self) -> str: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def all_agents(self) -> tuple[str, ...]: ...
    @property
    def points(self) -> np.ndarray: ...
    @property
    def color(self) -> np.ndarray: ...
    @property
    def color_name(self) -> str: ...
    @property
    def color_names(self) -> tuple[str, ...]: ...
    @property
    def color_is_class(self) -> bool: ...
    @property
    def explained(self) -> np.ndarray: ...
    @property
    def trust(self) -> float: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def unit_map(embedding: EmbeddingResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The first two dimensions, a point a moment: a class by colour and marker, a quantity by shade, as also more
    classes than markers tell apart; hollow where what it is coloured by is not known.

    Raises:
        ShapeError: a map of one dimension.
    """
    points = embedding.points
    if points.shape[1] < 2:
        raise ShapeError("a map is drawn from 2 dimensions or more")
    ax = axes(ax, width=6.0, height=4.6)
    size = float(np.clip(20000 / len(points), 7, 26))
    known = np.isfinite(embedding.color)
    if not known.all():
        told = f"not known ({(~known).sum():,})"
        x, y = points[~known, :2].T
        ax.scatter(x, y, s=size, facecolors="none", edgecolors="#BDBDBD", linewidths=0.6, label=told)
    if embedding.color_is_class and (embedding.color_names or len(np.unique(embedding.color[known])) <= MOST_CLASSES):
        _classes(ax, embedding, size)
    else:
        if not known.all():
            ax.legend(loc="upper right", fontsize=8)
        x, y = points[known, :2].T
        drawn = ax.scatter(x, y, c=embedding.color[known], s=size, cmap=SEQUENTIAL, linewidths=0)
        bar = ax.figure.colorbar(drawn, ax=ax, pad=0.02)
        bar.set_label(embedding.color_name, color=INK)
        bar.outline.set_visible(False)  # type: ignore[operator]
    if len(embedding.explained):
        across, up = (f"principal component {k + 1} ({embedding.explained[k]:.0%} of the variance)" for k in range(2))
    else:
        across, up = f"UMAP 1 (no unit; trustworthiness {embedding.trust:.2f})", "UMAP 2"
        ax.set_xticks([])
        ax.set_yticks([])
    by = embedding.color_name or "agent"
    finish(ax, title=title or f"{embedding.site} by {by}", x=across, y=up, grid="")
    alarm(ax, embedding.warnings)
    return ax


def _classes(ax: Axes, embedding: EmbeddingResult, size: float) -> None:
    present = np.unique(embedding.color[np.isfinite(embedding.color)]).astype(int)
    named = LIKE_THEIR_NAMES if set(embedding.color_names) <= LIKE_THEIR_NAMES.keys() else {}
    for k, value in enumerate(present):
        here = embedding.color == value
        if embedding.color_name:
            name = embedding.color_names[value] if value < len(embedding.color_names) else str(value)
            colour = named.get(name, OKABE_ITO[k % len(OKABE_ITO)])
        else:
            name = embedding.agents[value]
            colour = agent_colour(name, embedding.all_agents)
        marker = MARKERS[(k + k // len(OKABE_ITO)) % len(MARKERS)]  # a pair of its own for each of many classes
        x, y = embedding.points[here, :2].T
        ax.scatter(x, y, s=size, color=colour, marker=marker, linewidths=0, alpha=0.75, label=name)
    legend_beside(ax, title=embedding.color_name or "agent", size=36)

"""Hidden states in two dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.errors import ShapeError
from marlnb.plots.canvas import (
    MARKERS,
    OKABE_ITO,
    SEQUENTIAL,
    agent_colour,
    axes,
    finish,
    label_colour_bar,
    legend_outside,
)

if TYPE_CHECKING:
    from marlnb.analysis.representations.embedding import Embedding

NAMED_COLOURS = {"blue": OKABE_ITO[0], "green": OKABE_ITO[2], "red": OKABE_ITO[5], "black": OKABE_ITO[6]}
"""For classes whose names are colours: the points of class "red" are red."""

MAX_CLASSES = 16
"""Unnamed classes beyond this number are drawn as a quantity is: in shades."""


def embedding_map(embedding: Embedding, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The first two dimensions of an embedding, one point per time step.

    Classes differ by colour and marker. Quantities, and classes too many to tell apart, are shades. Points whose
    label is unknown are hollow.

    Raises:
        ShapeError: the embedding has one dimension only.
    """
    points = embedding.points
    if points.shape[1] < 2:
        raise ShapeError(f"an embedding map needs 2 or more dimensions; this embedding has {points.shape[1]}")
    ax = axes(ax, width=6.0, height=4.6)
    size = float(np.clip(20000 / len(points), 7, 26))
    known = np.isfinite(embedding.color)
    if not known.all():
        x, y = points[~known, :2].T
        label = f"unknown ({(~known).sum():,})"
        ax.scatter(x, y, s=size, facecolors="none", edgecolors="#BDBDBD", linewidths=0.6, label=label)
    is_named = embedding.color_names or not embedding.color_name  # without a label the classes are the agents
    if embedding.color_is_class and (is_named or len(np.unique(embedding.color[known])) <= MAX_CLASSES):
        _classes(ax, embedding, size)
    else:
        if not known.all():
            ax.legend(loc="upper right", fontsize=8, facecolor="white")
        x, y = points[known, :2].T
        scatter = ax.scatter(x, y, c=embedding.color[known], s=size, cmap=SEQUENTIAL, linewidths=0)
        bar = ax.figure.colorbar(scatter, ax=ax, pad=0.02)
        label_colour_bar(bar, embedding.color_name)
        bar.outline.set_visible(False)  # type: ignore[operator]
    if len(embedding.explained):
        across, up = (f"principal component {k + 1} ({embedding.explained[k]:.0%} of the variance)" for k in range(2))
    else:
        across, up = f"UMAP 1 (no unit; trustworthiness {embedding.trust:.2f})", "UMAP 2"
        ax.set_xticks([])
        ax.set_yticks([])
    heading = title or f"{embedding.site} by {embedding.color_name or 'agent'}"
    return finish(ax, title=heading, x=across, y=up, grid="", warnings=embedding.warnings)


def _classes(ax: Axes, embedding: Embedding, size: float) -> None:
    present = np.unique(embedding.color[np.isfinite(embedding.color)]).astype(int)
    named = NAMED_COLOURS if set(embedding.color_names) <= NAMED_COLOURS.keys() else {}
    for k, value in enumerate(present):
        if embedding.color_name:
            name = embedding.color_names[value] if 0 <= value < len(embedding.color_names) else str(value)
            colour = named.get(name, OKABE_ITO[k % len(OKABE_ITO)])
        else:
            name = embedding.agents[value]
            colour = agent_colour(name, embedding.all_agents)
        # shifted on each pass through the colours, so that up to 64 classes differ in colour or marker
        marker = MARKERS[(k + k // len(OKABE_ITO)) % len(MARKERS)]
        x, y = embedding.points[embedding.color == value, :2].T
        ax.scatter(x, y, s=size, color=colour, marker=marker, linewidths=0, alpha=0.75, label=name)
    legend_outside(ax, title=embedding.color_name or "agent", size=36)

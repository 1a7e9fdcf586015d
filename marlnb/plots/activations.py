"""What hidden units did: heat maps over an episode, beside the pictures of it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from marlnb.errors import ShapeError
from marlnb.plots.canvas import INK, SEQUENTIAL, axes, finish

MOST_PICTURE = 2.6  # longest side of a picture in a filmstrip, in inches
LABEL_WIDTH = 0.62  # of the time below one, in inches
TITLE_LETTERS = 10.0  # an inch


def activation_map(
    activations: ArrayLike,
    *,
    agent: str,
    site: str = "hidden units",
    order: Literal["index", "similarity"] = "similarity",
    bound: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One agent's units over one episode, a line a unit.

    Args:
        activations: `[time, unit]`.
        order: similarity puts units that move alike next to each other; index keeps the network's order.
        bound: the colours run from -bound to bound; None: to the largest magnitude (from 0 if nothing is negative).
    Raises:
        ShapeError: not two axes.
    """
    x = np.asarray(activations, dtype=float)
    if x.ndim != 2:
        raise ShapeError(f"an activation map takes [time, unit]; got {list(x.shape)}")
    ax = axes(ax, height=4.2)
    top = float(np.abs(x).max(initial=0)) if bound is None else bound
    low = 0.0 if bound is None and x.min(initial=0) >= 0 else -top
    shown = x[:, similar_order(x)] if order == "similarity" else x
    edges = (-0.5, x.shape[0] - 0.5, x.shape[1] - 0.5, -0.5)
    image = ax.imshow(
        shown.T, aspect="auto", cmap=SEQUENTIAL, vmin=low, vmax=top or 1.0, interpolation="nearest", extent=edges
    )
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("activation", color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
    if order == "similarity":  # places are not unit numbers
        ax.set_yticks([])
    name = f"{x.shape[1]} units, alike ones together" if order == "similarity" else "unit"
    return finish(ax, title=f"{agent}: {site}", x="time (steps)", y=name, grid="")


def similar_order(x: np.ndarray) -> np.ndarray:
    """The order of units `[unit]` in which neighbours move alike: by their angle in the first two components of x."""
    centred = x - x.mean(axis=0)
    scale = np.linalg.norm(centred, axis=0)
    _, _, directions = np.linalg.svd(centred / np.where(scale > 0, scale, 1.0), full_matrices=False)
    if len(directions) < 2:
        return np.arange(x.shape[1])
    return np.argsort(np.arctan2(directions[1], directions[0]), kind="stable")


def filmstrip(
    frames: ArrayLike,
    *,
    times: Sequence[int] | None = None,
    n: int = 5,
    title: str = "One episode",
    ax: Axes | None = None,
) -> Axes:
    """Pictures of an episode beside one another.

    Args:
        frames: `[time, height, width, 3]` uint8.
        times: which ones; None: `n` evenly spaced, the first and the last among them.
    """
    pictures = np.asarray(frames)
    if pictures.ndim != 4:
        raise ShapeError(f"a filmstrip takes [time, height, width, 3]; got {list(pictures.shape)}")
    shown = np.linspace(0, len(pictures) - 1, min(n, len(pictures))).round().astype(int) if times is None else times
    tall, wide = pictures.shape[1:3]
    scale = min(MOST_PICTURE / max(tall, wide), 1.9 / tall)  # inches a pixel
    gap = max(2, wide // 50, round(LABEL_WIDTH / scale) - wide)  # what is written below has room
    parts: list[np.ndarray] = []
    for t in shown:
        parts += [pictures[t], np.full((pictures.shape[1], gap, 3), 255, np.uint8)]
    strip = np.concatenate(parts[:-1], axis=1)
    width = max(2.4, scale * strip.shape[1] + 0.3)
    title = textwrap.fill(title, round(width * TITLE_LETTERS))
    ax = axes(ax, width=width, height=scale * tall + 1.0 + 0.22 * title.count("\n"))
    ax.imshow(strip, interpolation="antialiased")
    step = pictures.shape[2] + gap
    for index in range(len(shown)):
        left = index * step - 0.5
        ax.plot(
            [left, left + pictures.shape[2], left + pictures.shape[2], left, left],
            [-0.5, -0.5, pictures.shape[1] - 0.5, pictures.shape[1] - 0.5, -0.5],
            color="#BBBBBB",
            linewidth=0.8,
            clip_on=False,
        )
    ax.set_xticks([index * step + pictures.shape[2] / 2 for index in range(len(shown))], [f"t = {t}" for t in shown])
    ax.set_yticks([])
    finish(ax, title=title, x="time (steps)", y="", grid="")
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(length=0)
    return ax

"""Hidden units over an episode as a heat map, and the frames of the episode."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from marlnb.errors import ShapeError
from marlnb.plots.canvas import MISSING, SEQUENTIAL, axes, count_in_whole_numbers, finish, label_colour_bar

MAX_FRAME_INCHES = 2.6  # longest side of a frame in a filmstrip
MIN_STRIP_INCHES = 2.1
LABEL_WIDTH_INCHES = 0.62  # of the time below a frame
TITLE_LETTERS_PER_INCH = 10.0


def activation_map(
    activations: ArrayLike,
    *,
    agent: str,
    site: str = "hidden units",
    order: Literal["index", "similarity"] = "similarity",
    bound: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One agent's units over one episode, one row per unit; cells that are NaN or infinite are grey.

    Args:
        activations: `[time, unit]`.
        order: "similarity" puts units with similar courses next to each other; "index" keeps the network's order.
        bound: the colours range from -bound to bound; None: to the largest magnitude (from 0 if no value is negative).
    Raises:
        ShapeError: `activations` does not have two axes.
    """
    x = np.asarray(activations, dtype=float)
    if x.ndim != 2:
        raise ShapeError(f"activations must be [time, unit]; got the shape {list(x.shape)}")
    ax = axes(ax, height=4.2)
    finite = x[np.isfinite(x)]
    top = float(np.abs(finite).max(initial=0)) if bound is None else bound
    low = 0.0 if bound is None and finite.min(initial=0) >= 0 else -top
    ordered = x[:, similar_order(x)] if order == "similarity" else x
    edges = (-0.5, x.shape[0] - 0.5, x.shape[1] - 0.5, -0.5)
    cmap = colormaps[SEQUENTIAL].with_extremes(bad=MISSING)
    image = ax.imshow(
        ordered.T, aspect="auto", cmap=cmap, vmin=low, vmax=top or 1.0, interpolation="nearest", extent=edges
    )
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    label_colour_bar(bar, "activation")
    bar.outline.set_visible(False)  # type: ignore[operator]
    count_in_whole_numbers(ax.xaxis, ax.yaxis)
    if order == "similarity":  # rows are not unit numbers
        ax.set_yticks([])
    name = f"{x.shape[1]} units, similar ones together" if order == "similarity" else "unit"
    return finish(ax, title=f"{agent}: {site}", x="time (steps)", y=name, grid="")


def similar_order(x: np.ndarray) -> np.ndarray:
    """Sorts units by their angle in the plane of the first two principal components: neighbours have similar courses.

    Args:
        x: `[time, unit]`; what is NaN or infinite counts as the unit's mean.
    Returns:
        Indices of units `[unit]`.
    """
    known = np.ma.masked_invalid(x)
    centred = (known - known.mean(axis=0)).filled(0.0)
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
    """Frames of an episode side by side.

    Args:
        frames: `[time, height, width, 3]` uint8.
        times: which ones; None: `n` evenly spaced ones with the first and the last.
    """
    pictures = np.asarray(frames)
    if pictures.ndim != 4:
        raise ShapeError(f"frames must be [time, height, width, 3]; got the shape {list(pictures.shape)}")
    if times is None:
        times = np.linspace(0, len(pictures) - 1, min(n, len(pictures))).round().astype(int).tolist()
    height, width = pictures.shape[1:3]
    scale = min(MAX_FRAME_INCHES / max(height, width), 1.9 / height)  # inches a pixel
    gap = max(2, width // 50, round(LABEL_WIDTH_INCHES / scale) - width)  # room for the labels below
    blank = np.full((height, gap, 3), 255, np.uint8)
    strip = np.concatenate([part for t in times for part in (pictures[t], blank)][:-1], axis=1)
    margin = max(0, round(MIN_STRIP_INCHES / scale - strip.shape[1]) // 2)  # a narrow strip would be stretched
    strip = np.pad(strip, ((0, 0), (margin, margin), (0, 0)), constant_values=255)
    figure_width = scale * strip.shape[1] + 0.3
    title = textwrap.fill(title, round(figure_width * TITLE_LETTERS_PER_INCH))
    ax = axes(ax, width=figure_width, height=scale * height + 1.0 + 0.22 * title.count("\n"))
    ax.imshow(strip, interpolation="antialiased")
    lefts = margin + np.arange(len(times)) * (width + gap) - 0.5
    for left in lefts:
        x, y = np.array([0, width, width, 0, 0]) + left, np.array([0, 0, height, height, 0]) - 0.5
        ax.plot(x, y, color="#BBBBBB", linewidth=0.8, clip_on=False)
    ax.set_xticks(lefts + 0.5 + width / 2, [f"t = {t}" for t in times])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return finish(ax, title=title, x="time (steps)", y="", grid="")

"""Learning curves and distributions of returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, isfinite, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from marlnb.plots.canvas import (
    DASHES,
    INK,
    MUTED,
    OKABE_ITO,
    axes,
    count_in_whole_numbers,
    finish,
    legend_outside,
    line_style,
    width_with_legend,
)

LABEL_HEIGHT_PT = 23.0
"""Height of the label of a reference level."""
LETTER_WIDTH_PT = 4.7
ROUNDING = 1e-6
"""Returns that differ by less than this share of the largest one are equal: they are sums of float32."""


def learning_curve(
    frames: ArrayLike,
    returns: ArrayLike | Mapping[str, ArrayLike],
    *,
    references: Mapping[str, float] | None = None,
    smooth: int = 1,
    title: str = "Learning curve",
    ax: Axes | None = None,
) -> Axes:
    """Mean return per agent against environment steps, with reference levels.

    Args:
        frames: `[iteration]`, environment steps so far.
        returns: `[iteration]`, or several by name, in units of reward per agent and episode. NaN: not measured.
        references: named levels drawn as horizontal lines, such as `{"random": -42.9}`.
        smooth: iterations in a running mean, drawn thick over the thin curve of each iteration; an even number counts
            as one less, so that the mean is centred. 1: none.
    """
    smooth = smooth if smooth % 2 else smooth - 1
    curves = returns if isinstance(returns, Mapping) else {"trained": returns}
    is_smooth = False
    offset = reference_width_pt(references or {})
    ax = axes(ax, width=width_with_legend(curves, offset=offset) if len(curves) > 1 else 6.4)
    x = np.asarray(frames, dtype=float)
    million = x.max(initial=0) >= 1e6
    x = x / (1e6 if million else 1e3)
    for index, (name, curve) in enumerate(curves.items()):
        y = np.array(curve, dtype=float)
        known = np.isfinite(y)
        style = line_style(index) | {"marker": "o" if known.sum() == 1 else ""}  # a line of one point is invisible
        if smooth > 1 and known.sum() > smooth:
            is_smooth = True
            ax.plot(x[known], y[known], color=style["color"], alpha=0.4, linewidth=0.9)
            y[known] = running_mean(y[known], smooth)
        ax.plot(x[known], y[known], linewidth=2, label=name, **style)
    reference_lines(ax, references or {})
    if len(curves) > 1:
        legend_outside(ax, offset=offset)
    ax.margins(x=0.01)
    label = f"environment steps ({'million' if million else 'thousand'})"
    note = f"\nthin: each iteration, thick: running mean of {smooth}" if is_smooth else ""
    return finish(ax, title=title, x=label + note, y="return per agent and episode (reward)")


def running_mean(y: np.ndarray, window: int) -> np.ndarray:
    """The centred mean over `window` values; an even window counts as one less, and it shrinks near the ends.

    It is centred so that a rising curve is not drawn later than it rose.
    """
    total, index = np.concatenate([[0.0], np.cumsum(y)]), np.arange(len(y))
    half = np.minimum((window - 1) // 2, np.minimum(index, index[::-1]))
    return (total[index + half + 1] - total[index - half]) / (2 * half + 1)


def reference_width_pt(references: Mapping[str, float]) -> float:
    """The width of the labels of `reference_lines` in points."""
    return max((8 + LETTER_WIDTH_PT * len(name) for name in references), default=0.0)


def reference_lines(ax: Axes, references: Mapping[str, float]) -> None:
    """Dashed levels with labels beyond their right ends; labels of levels that are close move apart."""
    for level in references.values():
        ax.axhline(level, color=MUTED, linewidth=1.1, linestyle=(0, (4, 2)), zorder=1)
    ordered = sorted(references.items(), key=lambda item: item[1])
    style: dict[str, Any] = {"ha": "left", "fontsize": 8.5, "color": INK}
    bottom, top = ax.get_ylim()
    height = ax.get_position().height * ax.get_figure(root=True).get_figheight() * 72  # type: ignore[union-attr]
    levels_pt = [(level - bottom) / (top - bottom) * height for _, level in ordered]
    for (name, level), level_pt, label_pt in zip(ordered, levels_pt, _move_apart(levels_pt, LABEL_HEIGHT_PT)):
        text, offset = f"{name}\n({level:g})", (4, label_pt - level_pt)
        ax.annotate(text, (1.0, level), offset, ("axes fraction", "data"), "offset points", va="center", **style)


def _move_apart(positions: Sequence[float], gap: float) -> list[float]:
    """Moves ascending positions as little as possible, so that neighbours are `gap` apart: a crowd keeps its mean."""
    crowds: list[list[float]] = []
    for position in positions:
        crowds.append([position])
        while len(crowds) > 1 and _spread(crowds[-1], gap)[0] < _spread(crowds[-2], gap)[-1] + gap:
            last = crowds.pop()
            crowds[-1] += last
    return [position for crowd in crowds for position in _spread(crowd, gap)]


def _spread(crowd: Sequence[float], gap: float) -> list[float]:
    middle = sum(crowd) / len(crowd)
    return [middle + (k - (len(crowd) - 1) / 2) * gap for k in range(len(crowd))]


def return_distribution(
    returns: ArrayLike,
    *,
    references: Mapping[str, float] | None = None,
    bins: int = 30,
    title: str = "Returns of single episodes",
    ax: Axes | None = None,
) -> Axes:
    """A histogram of episode returns `[episode]` (reward per agent), with its mean and named reference levels."""
    import seaborn as sns  # takes about a second, which live panels need not pay

    y = np.asarray(returns, dtype=float)
    y = y[np.isfinite(y)]
    if len(y) and np.ptp(y) <= ROUNDING * np.abs(y).max():
        y = np.full_like(y, y.mean())
    mean_name = f"mean of {len(y)} {'episode' if len(y) == 1 else 'episodes'}"
    levels = {mean_name: float(np.mean(y))} if len(y) else {}
    levels |= references or {}
    span = float(np.ptp(y)) if len(y) and np.ptp(y) else max(map(abs, levels.values()), default=0.0)
    decimals = max(0, 2 - floor(log10(span))) if span > 0 and isfinite(span) else 1
    labels = {f"{name} ({level:,.{decimals}f})": level for name, level in levels.items()}
    ax = axes(ax, width=width_with_legend(labels))
    if len(y):
        sns.histplot(y, bins=bins, color=OKABE_ITO[0], alpha=0.85, edgecolor="white", linewidth=0.6, ax=ax)
    else:
        ax.text(0.5, 0.5, "no returns", transform=ax.transAxes, ha="center", va="center", color=MUTED)
    for index, (label, level) in enumerate(labels.items(), start=0 if len(y) else 1):
        dash = "-" if index == 0 else DASHES[1 + (index - 1) % (len(DASHES) - 1)]
        ax.axvline(level, color=INK if index == 0 else MUTED, linestyle=dash, linewidth=1.6, label=label)
    if levels:
        legend_outside(ax)
    count_in_whole_numbers(ax.yaxis)
    return finish(ax, title=title, x="return per agent and episode (reward)", y="episodes")

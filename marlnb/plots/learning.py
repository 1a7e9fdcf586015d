"""How well the agents do: learning curves and distributions of returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, isfinite, log10

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from marlnb.plots.canvas import DASHES, INK, MUTED, OKABE_ITO, axes, finish, legend_beside, literal, width_with_names

LABEL_HEIGHT = 23.0  # of a level's name, in points
LETTER = 4.7  # width of one in such a name, in points


def learning_curve(
    frames: ArrayLike,
    returns: ArrayLike | Mapping[str, ArrayLike],
    *,
    references: Mapping[str, float] | None = None,
    smooth: int = 1,
    title: str = "Learning curve",
    ax: Axes | None = None,
) -> Axes:
    """Mean return per agent against frames, beside what others reach.

    Args:
        frames: `[iteration]`, environment steps so far.
        returns: `[iteration]`, or several by name, in units of reward per agent and episode; NaN where none was
            measured.
        references: named levels drawn as horizontal lines, as `{"random": -42.9}`.
        smooth: iterations in a running mean, drawn thick over the thin curve of each iteration; 1: none.
    """
    curves, is_smooth = returns if isinstance(returns, Mapping) else {"trained": returns}, False
    beyond = names_width(references or {})
    ax = axes(ax, width=width_with_names(curves, beyond=beyond) if len(curves) > 1 else 6.4)
    x = np.asarray(frames, dtype=float)
    million = x.max(initial=0) >= 1e6
    x = x / (1e6 if million else 1e3)
    for index, (name, curve) in enumerate(curves.items()):
        y = np.asarray(curve, dtype=float)
        known = np.isfinite(y)
        colour, dash = OKABE_ITO[index % len(OKABE_ITO)], DASHES[index % len(DASHES)]
        if smooth > 1 and known.sum() > smooth:
            is_smooth = True
            ax.plot(x[known], y[known], color=colour, alpha=0.4, linewidth=0.9)
            ax.plot(x[known], running_mean(y[known], smooth), color=colour, linestyle=dash, linewidth=2)
        else:
            alone = "o" if known.sum() == 1 else ""
            ax.plot(x[known], y[known], color=colour, linestyle=dash, linewidth=2, marker=alone)
        ax.lines[-1].set_label(literal(name))
    reference_lines(ax, references or {})
    if len(curves) > 1:
        legend_beside(ax, beyond=beyond)
    ax.margins(x=0.01)
    label = f"environment steps ({'million' if million else 'thousand'})"
    note = f"\nthin: each iteration, thick: mean of {smooth} around it" if is_smooth else ""
    return finish(ax, title=literal(title), x=label + note, y="return per agent and episode (reward)")


def running_mean(y: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and its neighbours, `window` in all, an even one counting one less; of fewer near an end.

    As many on either side, so that a curve that climbs is not drawn later than it did.
    """
    total, place = np.concatenate([[0.0], np.cumsum(y)]), np.arange(len(y))
    half = np.minimum((window - 1) // 2, np.minimum(place, place[::-1]))
    return (total[place + half + 1] - total[place - half]) / (2 * half + 1)


def names_width(references: Mapping[str, float]) -> float:
    """What the names of `reference_lines` take beside the axes, in points."""
    return max((8 + LETTER * len(name) for name in references), default=0.0)


def reference_lines(ax: Axes, references: Mapping[str, float]) -> None:
    """Dashed levels, named beyond the right end, where no curve runs; names of levels close together move apart."""
    for level in references.values():
        ax.axhline(level, color=MUTED, linewidth=1.1, linestyle=(0, (4, 2)), zorder=1)
    ordered = sorted(references.items(), key=lambda item: item[1])
    bottom, top = ax.get_ylim()
    height = ax.get_position().height * ax.get_figure(root=True).get_figheight() * 72  # type: ignore[union-attr]
    places = [(level - bottom) / (top - bottom) * height for _, level in ordered]
    for (name, level), place, shown in zip(ordered, places, _apart(places, LABEL_HEIGHT)):
        ax.annotate(
            f"{literal(name)}\n({level:g})",
            xy=(1.0, level),
            xycoords=("axes fraction", "data"),
            xytext=(4, shown - place),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=8.5,
            color=INK,
        )


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved as little as makes neighbours `gap` apart: crowded ones share their middle."""
    runs: list[list[float]] = []
    for place in places:
        runs.append([place])
        while len(runs) > 1 and _spread(runs[-1], gap)[0] < _spread(runs[-2], gap)[-1] + gap:
            crowded = runs.pop()
            runs[-1] += crowded
    return [shown for run in runs for shown in _spread(run, gap)]


def _spread(run: Sequence[float], gap: float) -> list[float]:
    middle = sum(run) / len(run)
    return [middle + (k - (len(run) - 1) / 2) * gap for k in range(len(run))]


def return_distribution(
    returns: ArrayLike,
    *,
    references: Mapping[str, float] | None = None,
    bins: int = 30,
    title: str = "Returns of single episodes",
    ax: Axes | None = None,
) -> Axes:
    """A histogram of episode returns `[episode]` (reward per agent), with its mean and named reference levels."""
    y = np.asarray(returns, dtype=float)
    y = y[np.isfinite(y)]
    mean = f"mean of {len(y)} {'episode' if len(y) == 1 else 'episodes'}"
    levels = {mean: float(np.mean(y)) if len(y) else float("nan"), **(references or {})}
    span = float(np.ptp(y)) if np.ptp(y) else max(map(abs, levels.values()))
    decimals = max(0, 2 - floor(log10(span))) if span > 0 and isfinite(span) else 1
    labels = {f"{name} ({level:,.{decimals}f})": level for name, level in levels.items()}
    ax = axes(ax, width=width_with_names(labels))
    ax.hist(y, bins=bins, color=OKABE_ITO[0], alpha=0.85, edgecolor="white", linewidth=0.6)
    for index, (label, level) in enumerate(labels.items()):
        dash = "-" if index == 0 else DASHES[1 + (index - 1) % (len(DASHES) - 1)]
        ax.axvline(level, color=INK if index == 0 else MUTED, linestyle=dash, linewidth=1.6, label=literal(label))
    legend_beside(ax)
    return finish(ax, title=literal(title), x="return per agent and episode (reward)", y="episodes")

"""Sparse dictionaries: how often their features are active, and when."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import ALARM, INK, MUTED, OKABE_ITO, SEQUENTIAL, axes, count_in_whole_numbers, finish

if TYPE_CHECKING:
    from marlnb.analysis.dictionaries.dictionary import Dictionary


def feature_density(dictionary: Dictionary, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """How many features are active how often, on a logarithmic axis; dead features have their own bar on the left."""
    import seaborn as sns

    ax = axes(ax)
    density = np.asarray(dictionary.density)
    active = density[density > 0]
    lowest = min(np.floor(np.log10(active.min())), -1.0) if len(active) else -3.0
    edges = np.linspace(lowest, 0, 25)
    sns.histplot(np.log10(active), bins=edges.tolist(), color=OKABE_ITO[0], alpha=1, edgecolor="white", ax=ax)
    n_dead, width = int((density == 0).sum()), edges[1] - edges[0]
    ax.bar(lowest - 2 * width, n_dead, width=width, color=MUTED, hatch="//", edgecolor="white")
    ax.text(lowest - 2 * width, n_dead, f"{n_dead}\nnever", ha="center", va="bottom", fontsize=8.5, color=INK)
    ticks = np.arange(lowest, 1)
    ax.set_xticks(ticks, [f"{100 * 10.0**tick:g}%" for tick in ticks])
    is_doubtful = bool(dictionary.feature_warnings and not dictionary.warnings)
    ax.margins(y=0.5 if is_doubtful else 0.18)
    heading = title or f"How often the features of {dictionary.site} are active"
    note = f"{dictionary.explained:.1%} of the variance explained by {dictionary.active:.1f} features a step"
    corner: dict[str, Any] = {"transform": ax.transAxes, "fontsize": 9}
    ax.text(0.98, 0.97, note, ha="right", va="top", color=INK, **corner)
    if is_doubtful:
        doubts = textwrap.fill("DOUBTFUL: " + "; ".join(dictionary.feature_warnings), 56)
        ax.text(0.98, 0.9, doubts, ha="right", va="top", fontweight="bold", color=ALARM, **corner)
    count_in_whole_numbers(ax.yaxis)
    return finish(ax, title=heading, x="share of steps", y="features", warnings=dictionary.warnings)


def feature_strip(
    values: np.ndarray,
    t: Sequence[int],
    *,
    names: Sequence[str],
    title: str,
    maxima: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Features over the steps of one episode, each scaled by its own maximum, which is in brackets after its name.

    Args:
        values: `[time, feature]`.
        t: `[time]`, steps since the episode began.
        names: `[feature]`.
        maxima: `[feature]`, the values of the brightest colour, such as the maxima of a recording; None: those of
            `values`.
    """
    values = np.asarray(values)
    ax = axes(ax, height=1.4 + 0.28 * values.shape[1])
    maxima = values.max(0) if maxima is None else np.asarray(maxima)
    scaled = values / np.maximum(maxima, 1e-12)
    ax.imshow(scaled.T, aspect="auto", cmap=SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest")
    labels = [f"{name} ({maximum:.2g})" if name else "" for name, maximum in zip(names, maxima)]
    ax.set_yticks(range(values.shape[1]), labels, fontsize=8.5)
    ticks = np.linspace(0, len(t) - 1, min(len(t), 9)).round().astype(int)
    ax.set_xticks(ticks, [str(t[k]) for k in ticks])
    return finish(ax, title=title, x="time (steps)\ndark: 0; bright: the number in brackets", y="", grid="")

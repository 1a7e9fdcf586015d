"""Sparse dictionaries: how often features fire, what they add up to, and when the strongest ones do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import ALARM, INK, MUTED, OKABE_ITO, SEQUENTIAL, alarm, axes, finish


class DictionaryResult(Protocol):
    """density, mean_active `[feature]`; explained, a share; warnings and doubts to be shown."""

    @property
    def site(self) -> str: ...
    @property
    def density(self) -> np.ndarray: ...
    @property
    def explained(self) -> float: ...
    @property
    def active(self) -> float: ...
    @property
    def losses(self) -> tuple[float, ...]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    @property
    def doubts(self) -> tuple[str, ...]: ...


def feature_density(dictionary: DictionaryResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """How many features fire how often, on a logarithmic axis; those that never fire stand apart on the left."""
    ax = axes(ax)
    density = np.asarray(dictionary.density)
    firing = density[density > 0]
    lowest = np.floor(np.log10(firing.min())) if len(firing) else -3.0
    edges = np.linspace(lowest, 0, 25)
    ax.hist(np.log10(firing), bins=edges.tolist(), color=OKABE_ITO[0], edgecolor="white", linewidth=0.6)
    n_dead = int((density == 0).sum())
    width = edges[1] - edges[0]
    ax.bar(lowest - 2 * width, n_dead, width=width, color=MUTED, hatch="//", edgecolor="white")
    ax.text(lowest - 2 * width, n_dead, f"{n_dead}\nnever", ha="center", va="bottom", fontsize=8.5, color=INK)
    ticks = np.arange(lowest, 1)
    ax.set_xticks(ticks, [f"{100 * 10.0**tick:g}%" for tick in ticks])
    doubtful = bool(dictionary.doubts and not dictionary.warnings)
    ax.margins(y=0.5 if doubtful else 0.18)
    finish(ax, title=title or f"How often features of {dictionary.site} fire", x="share of steps", y="features")
    note = f"{dictionary.explained:.1%} of the variance explained by {dictionary.active:.1f} features a step"
    ax.text(0.98, 0.97, note, transform=ax.transAxes, ha="right", va="top", fontsize=9, color=INK)
    if doubtful:
        told = "DOUBTFUL: " + "; ".join(dictionary.doubts)
        loud = ax.text(0.98, 0.9, "\n".join(textwrap.wrap(told, 56)), transform=ax.transAxes, fontweight="bold")
        loud.set(ha="right", va="top", fontsize=9, color=ALARM)
    alarm(ax, dictionary.warnings)
    return ax


def feature_strip(
    values: np.ndarray,
    t: Sequence[int],
    *,
    names: Sequence[str],
    title: str,
    largest: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Features over the steps of one episode, each in shades of its own largest value.

    Args:
        values: `[time, feature]`; names: `[feature]`.
        largest: `[feature]`, what is brightest, as the largest of a recording; None: the largest shown here.
    """
    values = np.asarray(values)
    ax = axes(ax, height=1.4 + 0.28 * values.shape[1])
    top = values.max(0) if largest is None else np.asarray(largest)
    shades = values / np.maximum(top, 1e-12)
    ax.imshow(shades.T, aspect="auto", cmap=SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest")
    told = [f"{name} (to {most:.2g})" if name else "" for name, most in zip(names, top)]
    ax.set_yticks(range(values.shape[1]), told, fontsize=8.5)
    shown = np.linspace(0, len(t) - 1, min(len(t), 9)).round().astype(int)
    ax.set_xticks(shown, [str(t[k]) for k in shown])
    finish(ax, title=title, x="time (steps)", y="", grid="")
    return ax

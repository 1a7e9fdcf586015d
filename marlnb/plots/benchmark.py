"""Comparisons of algorithms over tasks and seeds: curves, aggregates, profiles and who beats whom."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from marlnb.errors import AnalysisError
from marlnb.plots.canvas import (
    DASHES,
    INK,
    MARKERS,
    MUTED,
    OKABE_ITO,
    axes,
    finish,
    legend_beside,
    literal,
    width_with_names,
)
from marlnb.plots.learning import names_width, reference_lines


class Band(Protocol):
    """A curve with its interval, all `[place]`."""

    @property
    def value(self) -> np.ndarray: ...
    @property
    def low(self) -> np.ndarray: ...
    @property
    def high(self) -> np.ndarray: ...


class Estimate(Protocol):
    """A number with its interval."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def algorithm_colour(algorithm: str, algorithms: Sequence[str]) -> str:
    """The colour of an algorithm: its place among all that are compared, so the same in every figure."""
    return OKABE_ITO[list(algorithms).index(algorithm) % len(OKABE_ITO)]


def sample_efficiency(
    curves: Mapping[str, tuple[ArrayLike, Band]],
    *,
    algorithms: Sequence[str] = (),
    references: Mapping[str, float] | None = None,
    each: Mapping[str, Sequence[tuple[ArrayLike, ArrayLike]]] | None = None,
    x: str = "environment steps",
    y: str = "return per agent and episode (reward)",
    title: str = "Sample efficiency",
    note: str = "IQM over seeds, 95% stratified bootstrap intervals",
    ax: Axes | None = None,
) -> Axes:
    """How well each algorithm does after how much experience.

    Args:
        curves: by algorithm, frames `[place]` and a curve with its interval at these.
        algorithms: all that are compared, for these ones' colours.
        references: named levels drawn as horizontal lines, as `{"random": -42.9}`.
        each: by algorithm, frames and values `[place]` of its single runs, drawn thin to their own ends.
        note: what the curve and its band are.
    """
    beyond = names_width(references or {})
    ax = axes(ax, width=width_with_names(curves, beyond=beyond))
    names = list(algorithms) or list(curves)
    single = each or {}
    every = [frames for frames, _ in curves.values()] + [frames for runs in single.values() for frames, _ in runs]
    most = max(float(np.max(np.asarray(frames, dtype=float))) for frames in every)
    scale, unit = (1e6, " (million)") if most >= 1e6 else (1e3, " (thousand)") if most >= 1e3 else (1.0, "")
    for name, (frames, band) in curves.items():
        index = names.index(name)
        places = np.asarray(frames, dtype=float) / scale
        colour, step = algorithm_colour(name, names), max(len(names), len(places) // 12)
        for frames_of_run, values in single.get(name, ()):
            ax.plot(np.asarray(frames_of_run, dtype=float) / scale, values, color=colour, alpha=0.35, linewidth=0.8)
        ax.fill_between(places, band.low, band.high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(
            places,
            band.value,
            color=colour,
            linestyle=DASHES[index % len(DASHES)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=4.5,
            markevery=(index * step // len(names), step),  # not at one place: curves may lie on each other
            linewidth=2,
            label=literal(name),
        )
    reference_lines(ax, references or {})
    legend_beside(ax, beyond=beyond)
    ax.margins(x=0.02)
    finish(ax, title=title, x=f"{x}{unit}\n{note}", y=y)
    return ax


def aggregate_intervals(
    aggregates: Mapping[str, Mapping[str, Estimate]],
    *,
    title: str = "Normalised score over all tasks",
    note: str = "",
) -> Figure:
    """One panel an aggregate (IQM, median, mean, optimality gap), one row an algorithm, with its 95% interval.

    Args:
        aggregates: `found[aggregate][algorithm]`.
        note: the scale of the scores, below the figure.
    """
    names = list(next(iter(aggregates.values())))
    lines = note.count("\n") + 1 if note else 0
    height = 1.5 + 0.5 * len(names) + 0.2 * lines
    figure = Figure(figsize=(2.6 * len(aggregates) + 0.8, height), dpi=110, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    shared: Axes | None = None
    for k, (aggregate, estimates) in enumerate(aggregates.items()):
        ax = figure.add_subplot(1, len(aggregates), k + 1, sharey=shared)
        shared = shared or ax
        for row, name in enumerate(names):
            estimate, colour = estimates[name], algorithm_colour(name, names)
            ax.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.55, color=colour, alpha=0.35)
            ax.plot([estimate.value] * 2, [row - 0.275, row + 0.275], color=colour, linewidth=3, solid_capstyle="butt")
            ax.text(estimate.value, row - 0.33, f"{estimate.value:.2f}", ha="center", va="bottom", fontsize=8.5)
        ax.set_ylim(len(names) - 0.5, -0.75)
        ax.set_yticks(range(len(names)), [literal(name) for name in names])
        ax.use_sticky_edges = False
        ax.margins(x=0.15)
        better = "lower is better" if aggregate == "optimality gap" else "higher is better"
        finish(ax, title="", x=better, y="", grid="x")
        ax.set_title(aggregate, fontsize=10, color=INK)
        ax.tick_params(axis="y", length=0, labelleft=k == 0)
        ax.locator_params(axis="x", nbins=4)
    _note(figure, note)
    return figure


def performance_profile(
    profiles: Mapping[str, Band],
    thresholds: ArrayLike,
    *,
    title: str = "Performance profile",
    note: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Which share of runs scores above each threshold; the curve that lies higher is better there.

    Args:
        profiles: by algorithm, the share at each threshold with its interval.
        thresholds: `[place]`, in normalised score.
        note: the scale of the scores, below the axis.
    """
    ax = axes(ax, width=width_with_names(profiles))
    names, places = list(profiles), np.asarray(thresholds, dtype=float)
    for index, (name, band) in enumerate(profiles.items()):
        colour = algorithm_colour(name, names)
        ax.fill_between(places, band.low, band.high, color=colour, alpha=0.18, linewidth=0, step="post")
        ax.step(
            places,
            band.value,
            where="post",
            color=colour,
            linestyle=DASHES[index % len(DASHES)],
            linewidth=2,
            label=literal(name),
        )
    ax.axhline(0.5, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    ax.set_ylim(-0.02, 1.03)
    ax.margins(x=0)
    legend_beside(ax)
    finish(ax, title=title, x="normalised score τ", y="share of runs with score > τ")
    if note:
        ax.set_xlabel(f"normalised score τ\n{textwrap.fill(note, 90)}", fontsize=9)
    return ax


def improvement_map(
    probabilities: Mapping[tuple[str, str], Estimate], *, title: str = "Probability of improvement"
) -> Axes:
    """How likely a run of the row's algorithm beats one of the column's on a task drawn at random, with its interval.

    Args:
        probabilities: by ordered pair (row, column).
    Raises:
        AnalysisError: no pair at all.
    """
    if not probabilities:
        raise AnalysisError("a probability of improvement needs two algorithms or more")
    names = list(dict.fromkeys(name for pair in probabilities for name in pair))
    n = len(names)
    ax = axes(None, width=2.6 + 1.25 * n, height=1.9 + 0.85 * n)
    values = np.full((n, n), np.nan)
    for (x, y), estimate in probabilities.items():
        values[names.index(x), names.index(y)] = estimate.value
    image = ax.imshow(values, cmap="BrBG", vmin=0, vmax=1, aspect="auto")
    for (x, y), estimate in probabilities.items():
        strong = abs(estimate.value - 0.5) > 0.28
        ax.text(
            names.index(y),
            names.index(x),
            f"{estimate.value:.2f}\n[{estimate.low:.2f}, {estimate.high:.2f}]",
            ha="center",
            va="center",
            fontsize=9,
            color="white" if strong else INK,
        )
    finish(ax, title=title, x="… beats a run of this one", y="a run of this one …", grid="")
    ax.set_xticks(
        range(n),
        [literal(name) for name in names],
        rotation=25 if n > 3 else 0,
        ha="right" if n > 3 else "center",
        rotation_mode="anchor" if n > 3 else "default",
    )
    ax.set_yticks(range(n), [literal(name) for name in names])
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(length=0)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85)
    bar.set_label("probability", color=INK, fontsize=9)
    bar.outline.set_visible(False)  # type: ignore[operator]
    return ax


def _note(figure: Figure, note: str) -> None:
    if note:
        figure.supxlabel(note, fontsize=8.5, color=MUTED)

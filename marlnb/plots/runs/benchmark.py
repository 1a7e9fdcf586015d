"""Comparisons of algorithms over tasks and seeds: curves, aggregates, profiles, probabilities of improvement."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    INK,
    MUTED,
    OKABE_ITO,
    PlainFigure,
    axes,
    finish,
    heat_map,
    legend_outside,
    line_style,
    width_with_legend,
)
from marlnb.plots.marks import draw_band
from marlnb.plots.runs.learning import reference_lines, reference_width_pt

if TYPE_CHECKING:
    from marlnb.analysis.benchmarking.statistics import Band, Estimate


def algorithm_colour(algorithm: str, algorithms: Sequence[str]) -> str:
    """The colour of an algorithm, by its index among all that are compared: the same in every figure.

    Raises:
        AnalysisError: `algorithms` lacks it.
    """
    return OKABE_ITO[_index(algorithm, algorithms) % len(OKABE_ITO)]


def _index(algorithm: str, algorithms: Sequence[str]) -> int:
    if algorithm not in algorithms:
        raise AnalysisError(unknown("algorithm", algorithm, algorithms))
    return list(algorithms).index(algorithm)


def _without_interval(intervals: Mapping[str, Estimate] | Mapping[str, Band]) -> str:
    """A line that names those of one seed; empty if there are none."""
    names = [name for name, interval in intervals.items() if np.isnan(interval.low).all()]
    return f"one seed, no interval: {', '.join(names)}" if names else ""


def sample_efficiency(
    curves: Mapping[str, tuple[ArrayLike, Band]],
    *,
    algorithms: Sequence[str] = (),
    references: Mapping[str, float] | None = None,
    runs: Mapping[str, Sequence[tuple[ArrayLike, ArrayLike]]] | None = None,
    x: str = "environment steps",
    y: str = "return per agent and episode (reward)",
    title: str = "Sample efficiency",
    note: str = "IQM over seeds, 95% stratified bootstrap intervals",
    ax: Axes | None = None,
) -> Axes:
    """The performance of each algorithm against experience.

    Args:
        curves: by algorithm, frames `[point]` and a curve with its interval at these frames.
        algorithms: all that are compared, for the colours; none: those of `curves`.
        references: named levels drawn as horizontal lines, such as `{"random": -42.9}`.
        runs: by algorithm, frames and values `[point]` of its single runs, drawn thin.
        note: what the curve and its band are.
    """
    offset = reference_width_pt(references or {})
    ax = axes(ax, width=width_with_legend(curves, offset=offset))
    names = list(algorithms) or list(curves)
    runs = runs or {}
    all_frames = [frames for frames, _ in curves.values()] + [frames for one in runs.values() for frames, _ in one]
    last = max(float(np.max(np.asarray(frames, dtype=float))) for frames in all_frames)
    scale, unit = (1e6, " (million)") if last >= 1e6 else (1e3, " (thousand)") if last >= 1e3 else (1.0, "")
    for name, (frames, band) in curves.items():
        xs, index = np.asarray(frames, dtype=float) / scale, _index(name, names)
        style, step = line_style(index), max(len(names), len(xs) // 12)
        colour = style["color"]
        for frames_of_run, values in runs.get(name, ()):
            ax.plot(np.asarray(frames_of_run, dtype=float) / scale, values, color=colour, alpha=0.35, linewidth=0.8)
        draw_band(ax, xs, band.low, band.high, colour=colour, alpha=0.18)
        # markers of different curves at different x: curves can overlap; a curve of few points has one too
        first = min(index * step // len(names), len(xs) - 1)
        style |= {"markersize": 4.5, "markevery": (first, step)}
        ax.plot(xs, band.value, linewidth=2, label=name, **style)
    reference_lines(ax, references or {})
    legend_outside(ax, offset=offset)
    ax.margins(x=0.02)
    single = _without_interval({name: band for name, (_, band) in curves.items()})
    return finish(ax, title=title, x="\n".join(filter(None, (f"{x}{unit}", note, textwrap.fill(single, 90)))), y=y)


def aggregate_intervals(
    aggregates: Mapping[str, Mapping[str, Estimate]], *, title: str = "Normalised score over all tasks", note: str = ""
) -> Figure:
    """One panel per aggregate (IQM, median, mean, optimality gap), with one row per algorithm and its 95% interval.

    Args:
        aggregates: by aggregate and algorithm.
        note: describes the scale of the scores; written below the figure.
    """
    names = list(next(iter(aggregates.values())))
    note = "\n".join(filter(None, (note, textwrap.fill(_without_interval(next(iter(aggregates.values()))), 140))))
    n_note_lines = note.count("\n") + 1 if note else 0
    height = 1.5 + 0.5 * len(names) + 0.2 * n_note_lines
    figure = PlainFigure(figsize=(2.6 * len(aggregates) + 0.8, height), dpi=110)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    shared: Axes | None = None
    for k, (aggregate, estimates) in enumerate(aggregates.items()):
        ax = figure.add_subplot(1, len(aggregates), k + 1, sharey=shared)
        shared = shared or ax
        for row, name in enumerate(names):
            estimate, colour = estimates[name], algorithm_colour(name, names)
            ax.barh(row, estimate.high - estimate.low, left=estimate.low, height=0.55, color=colour, alpha=0.35)
            ax.plot([estimate.value] * 2, [row - 0.275, row + 0.275], color=colour, linewidth=3, solid_capstyle="butt")
            number = ax.text(
                estimate.value, row - 0.33, f"{estimate.value:.2f}", ha="center", va="bottom", fontsize=8.5
            )
            number.set_color(INK)
        ax.set_ylim(len(names) - 0.5, -0.75)
        ax.set_yticks(range(len(names)), names)
        ax.use_sticky_edges = False
        ax.margins(x=0.15)
        better = "lower is better" if aggregate == "optimality gap" else "higher is better"
        finish(ax, title="", x=better, y="", grid="x")
        ax.set_title(aggregate, fontsize=10, color=INK)
        ax.tick_params(axis="y", length=0, labelleft=k == 0)
        ax.locator_params(axis="x", nbins=4)
    if note:
        figure.supxlabel(note, fontsize=8.5, color=MUTED)
    return figure


def performance_profile(
    profiles: Mapping[str, Band],
    thresholds: ArrayLike,
    *,
    title: str = "Performance profile",
    note: str = "",
    ax: Axes | None = None,
) -> Axes:
    """The share of runs that score above each threshold; higher is better.

    Args:
        profiles: by algorithm, the share at each threshold with its interval.
        thresholds: `[point]`, in normalised score.
        note: describes the scale of the scores; written below the axis.
    """
    ax = axes(ax, width=width_with_legend(profiles))
    names, xs = list(profiles), np.asarray(thresholds, dtype=float)
    for index, (name, band) in enumerate(profiles.items()):
        colour, dash = algorithm_colour(name, names), line_style(index)["linestyle"]
        ax.fill_between(xs, band.low, band.high, color=colour, alpha=0.18, linewidth=0, step="post")
        ax.step(xs, band.value, where="post", color=colour, linestyle=dash, linewidth=2, label=name)
    ax.axhline(0.5, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    ax.set_ylim(-0.02, 1.03)
    ax.margins(x=0)
    legend_outside(ax)
    across = "normalised score τ"
    for text in filter(None, (note, _without_interval(profiles))):
        across += f"\n{textwrap.fill(text, 90)}"
        ax.xaxis.label.set_fontsize(9)
    return finish(ax, title=title, x=across, y="share of runs with score > τ")


def improvement_map(
    probabilities: Mapping[tuple[str, str], Estimate], *, title: str = "Probability of improvement"
) -> Axes:
    """The probability that a run of the row's algorithm beats one of the column's on a random task, with its interval.

    Args:
        probabilities: by ordered pair (row, column).
    Raises:
        AnalysisError: there is no pair.
    """
    if not probabilities:
        raise AnalysisError("the probability of improvement compares algorithms: give two or more")
    names = list(dict.fromkeys(name for pair in probabilities for name in pair))
    n = len(names)
    values, text = np.full((n, n), np.nan), np.full((n, n), "", dtype=object)
    for (row, column), estimate in probabilities.items():
        cell = names.index(row), names.index(column)
        values[cell] = estimate.value
        interval = "one seed" if np.isnan(estimate.low) else f"[{estimate.low:.2f}, {estimate.high:.2f}]"
        text[cell] = f"{estimate.value:.2f}\n{interval}"
    ax = axes(None, width=2.6 + 1.25 * n, height=1.9 + 0.85 * n)
    heat_map(ax, values, rows=names, columns=names, text=text, low=0, high=1, cmap="BrBG", label="probability",
             font_size=9)  # fmt: skip
    ax.set_facecolor("white")  # an algorithm is not compared with itself
    ax.tick_params(length=0)
    return finish(ax, title=title, x="… beats a run of this one", y="a run of this one …", grid="")

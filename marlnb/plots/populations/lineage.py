"""A population: who descends from whom, how fit each member was, what was mutated, and how options moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import (
    ALARM,
    INK,
    MARKERS,
    MUTED,
    OKABE_ITO,
    SEQUENTIAL,
    axes,
    count_in_whole_numbers,
    finish,
    label_colour_bar,
    legend_outside,
    width_with_legend,
)

if TYPE_CHECKING:
    from marlnb.analysis.populations.inheritance_result import Inheritance
    from marlnb.populations.run_population import RunPopulation

LINE = "line of the fittest"
FENCE = 3.0
Edge = tuple[tuple[float, float], tuple[float, float]]


def lineage_tree(
    population: RunPopulation,
    *,
    inheritance: Inheritance | None = None,
    concept: str | None = None,
    title: str = "Lineage",
    ax: Axes | None = None,
) -> Axes:
    """Fitness of each member by generation, with a line from its parent; the thick line leads to the fittest member.

    Colours and markers are operators. Members that diverged are not shown. Where some are far below all others, the
    axis ends above them, and its label counts them.

    Args:
        inheritance: as `mnb.inheritance` gives it: lines then have the colour of the similarity of child and parent.
        concept: one of its concepts: members that hold it get a ring, and + and − say where it is gained and lost.
    Raises:
        AnalysisError: no generation has ended yet, no such concept, or a concept without an inheritance.
    """
    if concept is not None and inheritance is None:
        raise AnalysisError(
            f"concept={concept!r} needs inheritance=mnb.inheritance(population, recording, concepts=[...], ...)"
        )
    rows = {row.id: row for row in population.lineage() if row.fitness is not None}
    if not rows:
        raise AnalysisError(f"{population.run.shown_path} has no lineage yet: no generation has ended")
    points = {name: (row.generation, float(row.fitness or 0.0)) for name, row in rows.items()}
    operators = list(dict.fromkeys(row.operator for row in rows.values()))
    ax = axes(ax, width=width_with_legend([LINE, *operators]), height=4.0)
    edges = {name: (points[row.parent_id], points[name]) for name, row in rows.items() if row.parent_id in points}
    if inheritance is None:
        ax.add_collection(LineCollection(list(edges.values()), colors=MUTED, linewidths=0.6, alpha=0.6, zorder=1))
    else:
        _draw_similarities(ax, inheritance, edges)
    line = [points[row.id] for row in population.ancestors(population.best.id) if row.id in points]
    width = 2.2 if inheritance is None else 0.8
    ax.plot(*zip(*line), color=INK, linewidth=width, zorder=2, label=LINE)
    for index, operator in enumerate(operators):
        own = np.array([points[name] for name, row in rows.items() if row.operator == operator])
        colour, marker = OKABE_ITO[index % len(OKABE_ITO)], MARKERS[index % len(MARKERS)]
        ax.scatter(own[:, 0], own[:, 1], s=22, color=colour, marker=marker, label=operator, zorder=3)
    if inheritance is not None and concept is not None:
        _draw_concept(ax, inheritance, concept, points)
    legend_outside(ax)
    return _finish(ax, title=title, y="fitness" + _leave_out_far_below(ax, np.array([y for _, y in points.values()])))


def _leave_out_far_below(ax: Axes, fitness: np.ndarray) -> str:
    """Ends the axis below the members that are no outliers, and says how many are below it; empty if none.

    Outliers are more than FENCE interquartile ranges below the first quartile (Tukey's outer fence).
    """
    first, third = np.quantile(fitness, [0.25, 0.75])
    shown = fitness[fitness >= first - FENCE * (third - first)]
    n_below = len(fitness) - len(shown)
    if not n_below or first == third:
        return ""
    margin = 0.05 * np.ptp(shown)
    ax.set_ylim(shown.min() - margin, shown.max() + margin)
    return f"\n({n_below} of {len(fitness)} members below {ax.get_ylim()[0]:.3g} not shown)"


def _draw_similarities(ax: Axes, inheritance: Inheritance, edges: Mapping[str, Edge]) -> None:
    """A line from each parent to its child, in the colour of their similarity."""
    known = dict(zip(inheritance.members, inheritance.similarity))
    names = [name for name in edges if np.isfinite(known.get(name, np.nan))]
    lines = LineCollection([edges[name] for name in names], cmap=SEQUENTIAL, linewidths=2.5, zorder=1)
    lines.set_array(np.array([known[name] for name in names]))
    lines.set_clim(0, 1)
    ax.add_collection(lines)
    others = [edge for name, edge in edges.items() if name not in names]
    ax.add_collection(LineCollection(others, colors=MUTED, linewidths=0.6, alpha=0.6, zorder=1))
    bar = ax.figure.colorbar(lines, ax=ax, pad=0.02)
    label_colour_bar(bar, f"CKA of child and parent at {inheritance.site}", fontsize=9)


def _draw_concept(ax: Axes, inheritance: Inheritance, concept: str, points: Mapping[str, tuple[float, float]]) -> None:
    """A ring around each member that holds a concept, and a sign where a child gained or lost it."""
    holders = [points[name] for name in inheritance.members if inheritance.holds(name, concept) and name in points]
    rings = np.array(holders).reshape(-1, 2)
    ax.scatter(rings[:, 0], rings[:, 1], s=90, facecolors="none", edgecolors=ALARM, label=f"holds {concept}", zorder=4)
    for name in inheritance.members:
        for sign, concepts in (("+", inheritance.gained(name)), ("−", inheritance.lost(name))):
            if concept in concepts and name in points:
                text = f"{sign}{concept}"
                ax.annotate(text, points[name], (6, 6), textcoords="offset points", color=ALARM, fontsize=9)


def option_schedules(
    population: RunPopulation, option: str, *, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """How one option moved: a dot for each member and generation, a line for the ancestors of the fittest member.

    Args:
        option: its path, as "algorithm.lr".
    Raises:
        AnalysisError: it is not a number, or does not mutate.
    """
    rows = population.lineage()
    known = [name for name, value in (rows[0].options.items() if rows else ()) if isinstance(value, int | float)]
    if option not in known:
        raise AnalysisError(unknown("option that mutates", option, known))
    ax = axes(ax, width=width_with_legend([LINE]), height=4.0)
    generations, values = [row.generation for row in rows], np.array([row.options[option] for row in rows], dtype=float)
    ax.scatter(generations, values, s=14, color=MUTED, alpha=0.7, label="members")
    line = population.ancestors(population.best.id)
    steps = [row.generation for row in line], [row.options[option] for row in line]
    ax.step(*steps, where="mid", color=OKABE_ITO[0], lw=2, label=LINE)
    legend_outside(ax)
    if values.min() > 0 and values.max() / values.min() > 3:
        ax.set_yscale("log")
    return _finish(ax, title=title or option, y=option.rpartition(".")[2])


def _finish(ax: Axes, *, title: str, y: str) -> Axes:
    count_in_whole_numbers(ax.xaxis)
    return finish(ax, title=title, x="generation", y=y)

"""A population: who descends from whom, how fit each member was, what was mutated, and how options moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from marlnb.errors import AnalysisError, unknown
from marlnb.plots.canvas import INK, MARKERS, MUTED, OKABE_ITO, axes, finish, legend_outside, width_with_legend

if TYPE_CHECKING:
    from marlnb.populations.run_population import RunPopulation


def lineage_tree(population: RunPopulation, *, title: str = "Lineage", ax: Axes | None = None) -> Axes:
    """Fitness of each member by generation, with a line from its parent; the thick line leads to the fittest member.

    Colours and markers are operators. Members that diverged are not shown.
    Raises AnalysisError: no generation has ended yet.
    """
    rows = {row.id: row for row in population.lineage() if row.fitness is not None}
    if not rows:
        raise AnalysisError(f"{population.run.path} has no lineage yet: no generation has ended")
    points = {name: (row.generation, float(row.fitness or 0.0)) for name, row in rows.items()}
    operators = list(dict.fromkeys(row.operator for row in rows.values()))
    ax = axes(ax, width=width_with_legend(operators), height=4.0)
    edges = [(points[row.parent_id], points[name]) for name, row in rows.items() if row.parent_id in points]
    ax.add_collection(LineCollection(edges, colors=MUTED, linewidths=0.6, alpha=0.6, zorder=1))
    line = [points[row.id] for row in population.ancestors(population.best.id) if row.id in points]
    ax.plot(*zip(*line), color=INK, linewidth=2.2, zorder=2)
    for index, operator in enumerate(operators):
        own = np.array([points[name] for name, row in rows.items() if row.operator == operator])
        colour, marker = OKABE_ITO[index % len(OKABE_ITO)], MARKERS[index % len(MARKERS)]
        ax.scatter(own[:, 0], own[:, 1], s=22, color=colour, marker=marker, label=operator, zorder=3)
    legend_outside(ax)
    return finish(ax, title=title, x="generation", y="fitness")


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
    ax = axes(ax)
    ax.scatter([row.generation for row in rows], [row.options[option] for row in rows], s=14, color=MUTED, alpha=0.7)
    line = population.ancestors(population.best.id)
    ax.step([r.generation for r in line], [r.options[option] for r in line], where="mid", color=OKABE_ITO[0], lw=2)
    values = np.array([row.options[option] for row in rows], dtype=float)
    if values.min() > 0 and values.max() / values.min() > 3:
        ax.set_yscale("log")
    return finish(ax, title=title or option, x="generation", y=option.rpartition(".")[2])

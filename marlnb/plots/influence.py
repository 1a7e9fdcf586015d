"""Which agent influences which, with intervals, and what each agent adds to a group's value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.display.formatting import format_interval
from marlnb.plots.canvas import (
    MUTED,
    agent_colour,
    axes,
    count_in_whole_numbers,
    finish,
    heat_map,
    legend_outside,
    width_with_legend,
)
from marlnb.plots.marks import isolated_points, mean_with_middle_half

if TYPE_CHECKING:
    from marlnb.analysis.attribution.value_decomposition import ValueDecomposition
    from marlnb.analysis.communication.influence_result import Influence


def influence_matrix(influence: Influence, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The influence of each source on each agent, with its 95% interval below.

    An influence of exactly 0 is written as "0" without an interval. Pairs that were not computed are grey.
    """
    values = np.asarray(influence.values, dtype=float)
    text = np.full(values.shape, "0", dtype=object)
    for cell in np.argwhere(np.isfinite(values) & (values != 0)):
        k = tuple(cell)
        text[k] = format_interval(values[k], influence.low[k], influence.high[k], 2).replace(" ", "\n", 1)
    n_agents, n_sources = values.shape
    high = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    longest = max(len(line) for cell in text.flat for line in cell.split("\n"))
    side = max(0.85, 0.1 + 0.063 * longest)  # inches, in which the longest interval fits
    ax = axes(ax, width=3.4 + max(1.25, side) * n_sources, height=1.9 + side * n_agents)
    heat_map(ax, values, rows=influence.agents, columns=influence.sources, text=text, low=0, high=high or 1.0,
             square=True, label=f"{influence.measure}\n({influence.units})")  # fmt: skip
    for row, column in np.argwhere(~np.isfinite(values)):
        ax.text(column + 0.5, row + 0.5, "not\nmeasured", ha="center", va="center", color=MUTED, fontsize=8)
    x = f"source (95% intervals over {influence.n_episodes} episodes)"
    heading = title or f"Influence through {influence.through}"
    return finish(ax, title=heading, x=x, y="affected agent", grid="", warnings=influence.warnings)


def value_decomposition_over_time(
    shares: ValueDecomposition, *, agents: Sequence[str] = (), title: str | None = None, ax: Axes | None = None
) -> Axes:
    """What each agent adds to the group's value at each step: mean over rows; bands span the middle half.

    Args:
        agents: all agents of the environment, for the colours; none: the group's.
    """
    ax = axes(ax, width=width_with_legend(shares.agents))
    for index, agent in enumerate(shares.agents):
        colour = agent_colour(agent, agents or shares.agents)
        mean = mean_with_middle_half(ax, shares.t, shares.share[:, index], index=index, colour=colour, label=agent)
        # a line shows nothing of a step between two gaps: only those get a marker
        ax.lines[-1].set_markevery([int(k) for k in isolated_points(mean)])
    ax.axhline(0, color=MUTED, linewidth=1)
    legend_outside(ax)
    count_in_whole_numbers(ax.xaxis)
    heading = title or f"What each agent adds to the value of {shares.group}"
    return finish(ax, title=heading, x="time (steps)", y="share (reward)", warnings=shares.warnings)

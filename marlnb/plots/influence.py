"""Who influences whom, with intervals; what each agent adds to a group's value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from marlnb.plots.canvas import DASHES, MARKERS, MUTED, SEQUENTIAL, agent_colour, alarm, axes, finish


class InfluenceResult(Protocol):
    """`[agent, source]` in `units`, with intervals; NaN where nothing was asked."""

    @property
    def values(self) -> np.ndarray: ...
    @property
    def low(self) -> np.ndarray: ...
    @property
    def high(self) -> np.ndarray: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def through(self) -> str: ...
    @property
    def measure(self) -> str: ...
    @property
    def units(self) -> str: ...
    @property
    def n_episodes(self) -> int: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


class ValueSharesResult(Protocol):
    """`share` `[row, agent]` of a group's value, NaN where an agent was not acting; `t` `[row]`."""

    @property
    def share(self) -> np.ndarray: ...
    @property
    def total(self) -> np.ndarray: ...
    @property
    def t(self) -> np.ndarray: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def group(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def influence_matrix(influence: InfluenceResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Each pair's influence, its 95% interval below; an exact 0 is said as such, what was not asked is grey."""
    values = np.asarray(influence.values, dtype=float)
    n_agents, n_sources = values.shape
    ax = axes(ax, width=3.4 + 1.25 * n_sources, height=1.9 + 0.85 * n_agents)
    top = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    scale = Normalize(0, top or 1.0)
    ax.set_facecolor("#E8E8E8")
    image = ax.imshow(np.ma.masked_invalid(values), cmap=SEQUENTIAL, norm=scale)
    for row, column in np.ndindex(n_agents, n_sources):
        value = values[row, column]
        if not np.isfinite(value):
            ax.text(column, row, "not asked", ha="center", va="center", color=MUTED, fontsize=8)
            continue
        text = "0" if value == 0 else f"{value:.2g}"
        if value:
            text += f"\n[{influence.low[row, column]:.2g}, {influence.high[row, column]:.2g}]"
        colour = "black" if scale(value) > 0.5 else "white"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=8.5)
    ax.figure.colorbar(image, ax=ax, pad=0.02).set_label(f"{influence.measure}\n({influence.units})", fontsize=8.5)
    ax.set_xticks(range(n_sources), list(influence.sources), rotation=30, ha="right")
    ax.set_yticks(range(n_agents), list(influence.agents))
    heading = title or f"Influence through {influence.through}"
    finish(
        ax, title=heading, x=f"source (95% intervals over {influence.n_episodes} episodes)", y="whose output", grid=""
    )
    alarm(ax, influence.warnings)
    return ax


def value_shares_over_time(
    shares: ValueSharesResult, *, agents: Sequence[str] = (), title: str | None = None, ax: Axes | None = None
) -> Axes:
    """What each agent adds to the group's value at each step: mean over rows, bands span the middle half.

    Args:
        agents: all agents of the environment, for the colours; None: the group's.
    """
    ax = axes(ax)
    times = np.unique(shares.t)
    for place, agent in enumerate(shares.agents):
        stats = []
        for t in times:
            here = shares.share[shares.t == t, place]
            here = here[np.isfinite(here)]
            stats.append([*np.quantile(here, [0.25, 0.75]), here.mean()] if len(here) else [np.nan] * 3)
        low, high, mean = np.array(stats).T
        colour = agent_colour(agent, agents or shares.agents)
        ax.fill_between(times, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.plot(times, mean, color=colour, linestyle=DASHES[place % len(DASHES)], linewidth=1.8, label=agent,
                marker=MARKERS[place % len(MARKERS)], markersize=4.5, markevery=_alone(mean))  # fmt: skip
    ax.axhline(0, color=MUTED, linewidth=1)
    ax.legend(frameon=False, fontsize=9)
    finish(
        ax, title=title or f"What each agent adds to the value of {shares.group}", x="time (steps)", y="share (reward)"
    )
    alarm(ax, shares.warnings)
    return ax


def _alone(mean: np.ndarray) -> list[int]:
    """Places of a line's points that have no neighbour, of which it would show nothing without a marker."""
    known = np.concatenate([[False], np.isfinite(mean), [False]])
    return [int(k) for k in np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])]

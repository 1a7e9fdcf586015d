"""Which agents are alike, and which roles they take."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, MARKERS, OKABE_ITO, SEQUENTIAL, agent_colour, alarm, axes, finish, width_with_title


class ClusteringResult(Protocol):
    @property
    def silhouette(self) -> float: ...
    @property
    def chance(self) -> float: ...
    @property
    def stability(self) -> float: ...
    @property
    def gap(self) -> float | None: ...
    @property
    def structured(self) -> bool: ...
    @property
    def found(self) -> bool: ...


class RolesResult(Protocol):
    """Agents with their distances and teams; points `[point, 2]` with the role and the agent of each."""

    @property
    def of(self) -> str: ...
    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def all_agents(self) -> tuple[str, ...]: ...
    @property
    def distances(self) -> np.ndarray: ...
    @property
    def team(self) -> np.ndarray: ...
    @property
    def agents_clustering(self) -> ClusteringResult: ...
    @property
    def states_clustering(self) -> ClusteringResult: ...
    @property
    def role(self) -> np.ndarray: ...
    @property
    def points(self) -> np.ndarray: ...
    @property
    def taken(self) -> np.ndarray: ...
    @property
    def division(self) -> float: ...
    @property
    def division_chance(self) -> float: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def team_map(roles: RolesResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Distances between agents, teams together; says when they are no more than chance."""
    order = np.argsort(roles.team, kind="stable")
    names = [roles.agents[k] for k in order]
    n = len(names)
    found = "teams found" if roles.agents_clustering.found else "no teams beyond chance"
    heading = title or f"Agents by {roles.of}: {found}"
    before = 0.4 + 0.07 * max(map(len, names))
    ax = axes(ax, width=max(3.2 + 0.6 * n, width_with_title(heading, before=before)), height=2.2 + 0.55 * n)
    shown = roles.distances[np.ix_(order, order)]
    top = float(shown.max()) or 1.0
    image = ax.imshow(shown, cmap=SEQUENTIAL, vmin=0, vmax=top)
    for i in range(n):
        for j in range(n):
            colour = "white" if shown[i, j] < 0.55 * top else INK
            ax.text(j, i, f"{shown[i, j]:.2f}", ha="center", va="center", fontsize=8, color=colour)
    for edge in np.flatnonzero(np.diff(roles.team[order])) + 0.5:
        if roles.agents_clustering.found:
            ax.axhline(edge, color="white", linewidth=3)
            ax.axvline(edge, color="white", linewidth=3)
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("distance of means\n(standard deviations)", color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
    ax.set_xticks(range(n), names, rotation=40, ha="right", fontsize=8)
    ax.set_yticks(range(n), names, fontsize=8)
    finish(ax, title=heading, x="", y="", grid="")
    alarm(ax, roles.warnings)
    return ax


def role_map(roles: RolesResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Stretches of episodes on their first two principal components, by role."""
    ax = axes(ax, width=6.0, height=4.4)
    size = float(np.clip(8000 / len(roles.points), 4, 26))
    for k in range(roles.taken.shape[1]):
        here = roles.role == k
        name = f"role {k} ({np.mean(here):.0%})"
        marker, colour = MARKERS[k % len(MARKERS)], OKABE_ITO[k % len(OKABE_ITO)]
        x, y = roles.points[here].T
        ax.scatter(x, y, s=size, marker=marker, color=colour, linewidths=0, alpha=0.75, label=name)
    ax.legend(frameon=False, fontsize=8.5, markerscale=1.6)
    one = roles.states_clustering
    continuum = "a continuum, not roles" if one.structured else "no roles beyond chance"
    found = "roles of moments" if one.found else continuum
    told = f"silhouette {one.silhouette:.2f} (chance {one.chance:.2f}), stability {one.stability:.2f}"
    told += "" if one.gap is None else f", gap {one.gap:.2f}"
    finish(
        ax,
        title=title or f"{roles.of}: {found}",
        x=f"principal component 1 (standard deviations)\n{told}",
        y="principal component 2",
        grid="",
    )
    alarm(ax, roles.warnings)
    return ax


def roles_taken(roles: RolesResult, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """How much of its time each agent spends in each role."""
    ax = axes(ax, width=2.6 + 1.1 * len(roles.agents), height=3.6)
    n_roles = roles.taken.shape[1]
    width = 0.8 / n_roles
    for i, agent in enumerate(roles.agents):
        for k in range(n_roles):
            place = i + (k - (n_roles - 1) / 2) * width
            bar = ax.bar(place, roles.taken[i, k], width * 0.92, color=agent_colour(agent, roles.all_agents))
            bar[0].set_alpha(1 - 0.6 * k / max(n_roles - 1, 1))
            ax.text(place, roles.taken[i, k] + 0.01, str(k), ha="center", fontsize=8, color=INK)
    ax.set_xticks(range(len(roles.agents)), list(roles.agents))
    held = f"roles held at once: {roles.division:.2f} (independently: {roles.division_chance:.2f})"
    told = f"over each bar its role's number\n{held}"
    finish(ax, title=title or "Who takes which role?", x=told, y="share of the stretches")
    alarm(ax, roles.warnings)
    return ax

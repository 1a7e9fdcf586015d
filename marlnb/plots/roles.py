"""Which agents are alike, and which roles they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import (
    INK,
    agent_colour,
    axes,
    finish,
    heat_map,
    legend_outside,
    line_style,
    width_of_columns,
    width_with_legend,
    width_with_title,
)

if TYPE_CHECKING:
    from marlnb.analysis.representations.roles_result import Roles


def team_map(roles: Roles, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Distances between agents, sorted by team. The title says if the teams are not beyond chance."""
    order = np.argsort(roles.team, kind="stable")
    names = [roles.agents[k] for k in order]
    n, has_teams = len(names), roles.agents_clustering.has_clusters
    heading = title or f"Agents by {roles.of}: {'teams found' if has_teams else 'no teams beyond chance'}"
    width = width_with_title(heading, left=0.4 + 0.07 * max(map(len, names)))
    ax = axes(ax, width=max(3.2 + 0.6 * n, width), height=2.2 + 0.55 * n)
    distances = roles.distances[np.ix_(order, order)]
    text = np.vectorize("{:.2f}".format)(distances)
    label, high = "distance of means\n(standard deviations)", float(distances.max()) or 1.0
    heat_map(ax, distances, rows=names, columns=names, label=label, text=text, low=0, high=high, square=True)
    if has_teams:
        for edge in np.flatnonzero(np.diff(roles.team[order])) + 1:
            ax.axhline(float(edge), color="white", linewidth=3)
            ax.axvline(float(edge), color="white", linewidth=3)
    return finish(ax, title=heading, x="", y="", grid="", warnings=roles.warnings)


def role_map(roles: Roles, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Stretches of episodes on their first two principal components, by role."""
    import seaborn as sns

    names = [f"role {k} ({np.mean(roles.role == k):.0%})" for k in range(roles.taken.shape[1])]
    ax = axes(ax, width=width_with_legend(names), height=4.4)
    x, y = roles.points.T
    role, styles = np.array(names)[roles.role], [line_style(k) for k in range(len(names))]
    colours = {"hue": role, "hue_order": names, "palette": [style["color"] for style in styles]}
    markers = {"style": role, "style_order": names, "markers": [style["marker"] for style in styles]}
    size = float(np.clip(8000 / len(roles.points), 4, 26))
    sns.scatterplot(x=x, y=y, s=size, linewidth=0, alpha=0.75, ax=ax, **colours, **markers)
    legend_outside(ax, size=36)
    states = roles.states_clustering
    if states.has_clusters:
        verdict = "roles over time"
    else:
        verdict = "a continuum, not roles" if states.structured else "no roles beyond chance"
    scores = f"silhouette {states.silhouette:.2f} (chance {states.chance:.2f}), stability {states.stability:.2f}"
    scores += "" if states.gap is None else f", gap {states.gap:.2f}"
    across = f"principal component 1 (standard deviations)\n{scores}"
    heading = title or f"{roles.of}: {verdict}"
    return finish(ax, title=heading, x=across, y="principal component 2", grid="", warnings=roles.warnings)


def role_shares(roles: Roles, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """The share of its time that each agent spends in each role."""
    n_roles = roles.taken.shape[1]
    columns = width_of_columns(len(roles.agents), 1.1, narrowest=0.1 + 0.12 * n_roles)
    ax = axes(ax, width=2.6 + columns, height=3.6)
    width = 0.8 / n_roles
    for k, agent in enumerate(roles.agents):
        for role in range(n_roles):
            x, share = k + (role - (n_roles - 1) / 2) * width, roles.taken[k, role]
            alpha = 1 - 0.6 * role / max(n_roles - 1, 1)
            ax.bar(x, share, width * 0.92, color=agent_colour(agent, roles.all_agents), alpha=alpha)
            ax.text(x, share + 0.01, str(role), ha="center", fontsize=8, color=INK)
    ax.set_xticks(range(len(roles.agents)), list(roles.agents))
    division = f"roles held at the same time: {roles.division:.2f} (independently: {roles.division_chance:.2f})"
    across = f"the number of the role is above its bar\n{division}"
    heading = title or "Who takes which role?"
    return finish(ax, title=heading, x=across, y="share of the windows", warnings=roles.warnings)

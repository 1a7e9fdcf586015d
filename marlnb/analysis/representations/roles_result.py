"""Roles found or not found: of agents for good, and of moments, each beside what chance gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.analysis.results import doubts, shown_as_html

SIGNIFICANT = 0.05
STABLE = 0.5
APART = 1.25


@dataclass(frozen=True)
class Clustering:
    """How clearly points fall into groups.

    Attributes:
        n: how many groups; silhouette: in -1 to 1, of the points in them; chance: its mean under the null.
        p_value: of chance; stability: mean adjusted Rand index between the groups found in halves of the episodes.
        gap: how much further the points at a group's edge (its outermost 5%) have it to their fifth neighbour in
            another group than to that in their own: about 1 where groups are cut out of a continuum, a ring say, which
            is no cloud either; None for agents, whose single stretches may overlap.
    """

    n: int
    silhouette: float
    chance: float
    p_value: float
    stability: float
    gap: float | None = None

    @property
    def found(self) -> bool:
        """Beyond chance, alike in both halves of the episodes, and apart from each other."""
        return self.structured and (self.gap is None or self.gap > APART)

    @property
    def structured(self) -> bool:
        """Beyond chance and alike in both halves, though perhaps a continuum without groups."""
        return self.p_value < SIGNIFICANT and self.stability > STABLE


@dataclass(frozen=True)
class Roles:
    """Whether agents differ for good (teams), and whether they divide roles from moment to moment.

    Attributes:
        of: what they are told apart by: a site, or behaviour; features: its names.
        distances: `[agent, agent]`, between the agents' means, in standard deviations of a feature.
        team: `[agent]`, clusters of agents; agents_clustering: how clear they are, against shuffled identities.
        stretch: `[point]`, which stretch of which episode; who: `[point]`, place among agents; role: `[point]`, its
            cluster; episode, t: `[point]`, where it begins; points: `[point, 2]`, first principal components.
        states_clustering: how clear the roles are, against one cloud of the same spread.
        profile: `[role, feature]`, means in standard deviations.
        taken: `[agent, role]`, shares of each agent's stretches.
        division: mean number of different roles that the agents hold at once; division_chance: if each held its roles
            independently of the others; division_p: of chance, in either direction.
    """

    of: str
    agents: tuple[str, ...]
    all_agents: tuple[str, ...]
    features: tuple[str, ...]
    distances: np.ndarray
    team: np.ndarray
    agents_clustering: Clustering
    stretch: np.ndarray
    who: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    role: np.ndarray
    points: np.ndarray
    states_clustering: Clustering
    profile: np.ndarray
    taken: np.ndarray
    division: float
    division_chance: float
    division_p: float
    n_episodes: int
    warnings: tuple[str, ...] = ()

    @property
    def teams_found(self) -> bool:
        return self.agents_clustering.found

    @property
    def roles_found(self) -> bool:
        return self.states_clustering.found

    @property
    def divided(self) -> bool:
        """Whether agents hold different roles at once more often than by chance."""
        return self.division_p < SIGNIFICANT and self.division > self.division_chance

    @property
    def teams(self) -> list[list[str]]:
        return [[a for a, team in zip(self.agents, self.team) if team == k] for k in range(int(self.team.max()) + 1)]

    def table(self) -> pd.DataFrame:
        """One line a clustering."""
        lines = {
            "agents": (self.agents_clustering, self.teams_found),
            "states": (self.states_clustering, self.roles_found),
        }
        return pd.DataFrame([{"of": name, **asdict(c), "found": found} for name, (c, found) in lines.items()])

    def verdict(self) -> str:
        """In words."""
        a, s = self.agents_clustering, self.states_clustering
        teams = " | ".join(", ".join(team) for team in self.teams)
        one = f"agents differ for good: {teams}" if self.teams_found else "no roles of agents found"
        two = f"{s.n} roles of moments" if self.roles_found else "no roles of moments found"
        if s.structured and not s.found:
            two += f": a continuum, not groups (gap {s.gap:.2f})"
        held = "divided among agents" if self.divided else "not divided beyond chance"
        return (
            f"{one} (silhouette {a.silhouette:.2f}, chance {a.chance:.2f}, stability {a.stability:.2f}); "
            f"{two} (silhouette {s.silhouette:.2f}, chance {s.chance:.2f}, stability {s.stability:.2f})"
            + (f", {held}" if self.roles_found else "")
        )

    def to_json(self) -> dict[str, Any]:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        return f"Roles({self.of}: {self.verdict()}{flag})"

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table())

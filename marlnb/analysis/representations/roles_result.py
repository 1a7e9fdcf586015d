"""The result of a role analysis: teams of agents and roles at single times, each next to chance."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from marlnb.analysis.results import ALPHA, Result

MIN_STABILITY = 0.5
MIN_GAP = 1.25


@dataclass(frozen=True)
class Clustering:
    """How clearly points fall into clusters.

    Attributes:
        n: number of clusters.
        silhouette: mean silhouette of the points, -1 to 1 (Rousseeuw 1987).
        chance: its mean under the null hypothesis.
        p_value: of the silhouette under the null hypothesis.
        stability: mean adjusted Rand index between the clusters found in two halves of the episodes (Hubert and Arabie
            1985); None if each agent is a team of its own, where halves cannot disagree.
        gap: for the outermost 5% of points, the distance to the fifth neighbour in another cluster divided by that in
            their own. About 1 where a continuum is cut into clusters, for example a ring, which differs from the null
            distribution but has no clusters. None for agents, whose windows may overlap.
    """

    n: int
    silhouette: float
    chance: float
    p_value: float
    stability: float | None
    gap: float | None = None

    @property
    def has_clusters(self) -> bool:
        """Whether there are clusters: beyond chance, alike in both halves of the episodes, and separated."""
        return self.structured and (self.gap is None or self.gap > MIN_GAP)

    @property
    def structured(self) -> bool:
        """Whether the points are structured beyond chance and alike in both halves; this may be a continuum."""
        return self.p_value < ALPHA and (self.stability is None or self.stability > MIN_STABILITY)


def _describe(clustering: Clustering) -> str:
    stability = clustering.stability
    return f"silhouette {clustering.silhouette:.2f}, chance {clustering.chance:.2f}, p = {clustering.p_value:.2g}, " + (
        "stability is not defined for teams of one agent" if stability is None else f"stability {stability:.2f}"
    )


@dataclass(frozen=True, eq=False, repr=False)
class Roles(Result):
    """Whether agents differ permanently (teams), and whether they divide roles that change over time.

    Attributes:
        of: what is clustered: a site's units, or behaviour.
        agents: the clustered agents.
        all_agents: all agents of the environment.
        features: names of the clustered features.
        distances: `[agent, agent]`, between the agents' means, in standard deviations of a feature.
        team: `[agent]`, cluster of each agent.
        agents_clustering: how clear the teams are, against identities shuffled in each episode.
        window: `[point]`, the episode window of each point.
        agent_index: `[point]`, index into `agents`.
        episode: `[point]`.
        t: `[point]`, first step of the window.
        role: `[point]`, cluster of each point.
        points: `[point, 2]`, first two principal components.
        states_clustering: how clear the roles are, against one Gaussian cloud.
        profile: `[role, feature]`, means in standard deviations.
        taken: `[agent, role]`, share of each agent's windows.
        division: mean number of different roles that the agents hold at the same time.
        division_chance: the same if each agent held its roles of other episodes, independently of the others.
        division_p: two-sided p-value of the difference.
        n_episodes: episodes with windows.
        warnings: reasons not to trust the result.
    """

    of: str
    agents: tuple[str, ...]
    all_agents: tuple[str, ...]
    features: tuple[str, ...]
    distances: np.ndarray
    team: np.ndarray
    agents_clustering: Clustering
    window: np.ndarray
    agent_index: np.ndarray
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
    def has_teams(self) -> bool:
        return self.agents_clustering.has_clusters

    @property
    def has_roles(self) -> bool:
        return self.states_clustering.has_clusters

    @property
    def divided(self) -> bool:
        """Whether agents hold different roles at the same time more often than by chance."""
        return self.division_p < ALPHA and self.division > self.division_chance

    @property
    def teams(self) -> list[list[str]]:
        return [[a for a, team in zip(self.agents, self.team) if team == k] for k in range(int(self.team.max()) + 1)]

    def table(self) -> pd.DataFrame:
        """One row for each clustering."""
        clusterings = {"agents": self.agents_clustering, "states": self.states_clustering}.items()
        return pd.DataFrame([{"of": of, **asdict(c), "has_clusters": c.has_clusters} for of, c in clusterings])

    @property
    def verdict(self) -> str:
        """Whether there are teams, roles over time and a division of these, each against its null hypothesis."""
        agents, states = self.agents_clustering, self.states_clustering
        teams = " | ".join(", ".join(team) for team in self.teams)
        differ = f"the agents differ permanently: {teams}" if self.has_teams else "no permanent roles of agents found"
        of_states = f"{states.n} roles over time" if self.has_roles else "no roles over time found"
        if states.structured and not states.has_clusters:
            of_states += f": a continuum without clusters (gap {states.gap:.2f}, clusters have more than {MIN_GAP})"
        text = f"By {self.of}, {differ} ({_describe(agents)}); {of_states} ({_describe(states)})"
        if self.has_roles:
            division = "divided among the agents" if self.divided else "not divided among the agents beyond chance"
            held = f"{self.division:.2f} different roles at once, {self.division_chance:.2f} by chance"
            text += f", {division} ({held}, p = {self.division_p:.2g})"
        return f"{text}; n = {self.n_episodes} episodes."

    def _repr_table(self) -> pd.DataFrame:
        return self.table()[["of", "n", "silhouette", "chance", "p_value", "has_clusters"]]

"""Roles: do agents differ permanently (teams), and do they divide roles among them that change over time?

Agents that share one policy are interchangeable: they may hold different roles at a time, but not permanently. The two
questions are therefore tested separately, each against its own null hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.representations.role_features import behaviour_features, unit_features
from marlnb.analysis.representations.roles_result import Clustering, Roles
from marlnb.analysis.results import few_episodes_warning
from marlnb.analysis.stats.bootstrap import MIN_RESAMPLES, p_value_above
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.errors import AnalysisError
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

MAX_POINTS = 1000
"""A silhouette needs the distances of all pairs of points."""
N_SPLITS = 10
GAP_NEIGHBOR = 5
MAX_COMPONENTS = 10


def roles(
    recording: RecordingLike,
    *,
    site: str | None = None,
    agents: str | Sequence[str] | None = None,
    window: int | None = None,
    max_roles: int = 5,
    checkpoint: int | None = None,
    n_shuffles: int = 60,
    seed: int = 0,
) -> Roles:
    """Clusters agents, and what they do at single times, by their units or by their behaviour.

    Teams: the agents' means over all episodes, joined by average linkage into as many clusters as give the best
    silhouette (Rousseeuw 1987) of the single windows. Null hypothesis: the agents' identities are shuffled in each
    episode, alike in all of its windows, since what an agent does in one window often lasts for the episode.

    Roles: k-means of all windows of all agents, on principal components. Null hypothesis: one Gaussian cloud with the
    same variances (Liu et al. 2008, SigClust). A gap between the clusters is required too, since a ring is not a
    Gaussian cloud and has no clusters. Both clusterings must also agree between two halves of the episodes (adjusted
    Rand index above 0.5); if each agent is a team of its own, as the two of a pair are, halves cannot disagree.

    Division: how many different roles the agents hold at once. Null hypothesis: each agent has its roles of other
    episodes at the same time steps, independently of the others.

    Args:
        site: whose units are averaged; None: behaviour (frequencies of actions, changes of action, reward), which also
            compares agents of different groups.
        agents: one name or several; None for all.
        window: steps of a window; None: whole episodes.
        max_roles: largest number of roles.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        n_shuffles: samples of each null hypothesis.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: fewer than two agents or episodes; agents with different actions and no site; features that never
            vary.
    """
    recording = opened_recording(recording)
    n_shuffles = checked_number(n_shuffles, int, "n_shuffles", ge=MIN_RESAMPLES)
    max_roles, seed = checked_number(max_roles, int, "max_roles", ge=2), checked_number(seed, int, "seed", ge=0)
    window = None if window is None else checked_number(window, int, "window", ge=1)
    if site is None:
        features = behaviour_features(recording, agents, window, checkpoint)
    else:
        features = unit_features(recording, site, agents, window, checkpoint)
    n_episodes = len(np.unique(features.episode))
    if n_episodes < 2:
        raise AnalysisError("roles compares halves of the episodes: expected at least 2 recorded episodes, got 1")
    rng = np.random.default_rng(seed)
    x = _standardised(features.values)
    n_windows, n_agents, n_features = x.shape
    points = x.reshape(-1, n_features)
    team, agents_clustering = _agent_clusters(x, features.episode, n_shuffles, rng)
    components = _principal_components(points)
    point_episode = np.repeat(features.episode, n_agents)
    role, states_clustering = _state_clusters(components, point_episode, max_roles, n_shuffles, rng)
    role_at = role.reshape(n_windows, n_agents)
    division, division_chance, division_p = _division(role_at, features.episode, features.t, n_shuffles, rng)
    n_roles = int(role.max()) + 1
    return Roles(
        of="behaviour" if site is None else site,
        agents=features.agents,
        all_agents=recording.spec.agents,
        features=features.features,
        distances=np.asarray(squareform(pdist(x.mean(axis=0))) / np.sqrt(n_features)),
        team=team,
        agents_clustering=agents_clustering,
        window=np.repeat(np.arange(n_windows), n_agents),
        agent_index=np.tile(np.arange(n_agents), n_windows),
        episode=point_episode,
        t=np.repeat(features.t, n_agents),
        role=role,
        points=np.pad(components, ((0, 0), (0, 1)))[:, :2],
        states_clustering=states_clustering,
        profile=np.stack([points[role == k].mean(axis=0) for k in range(n_roles)]),
        taken=np.stack([np.bincount(column, minlength=n_roles) / n_windows for column in role_at.T]),
        division=division,
        division_chance=division_chance,
        division_p=division_p,
        n_episodes=n_episodes,
        warnings=(*few_episodes_warning(n_episodes), *duplicate_episode_warnings(recording, features.episode)),
    )


def _standardised(values: np.ndarray) -> np.ndarray:
    """Each feature with mean 0 and variance 1 over all points; features that never vary become 0."""
    points = values.reshape(-1, values.shape[2])
    deviation = points.std(axis=0)
    if not np.isfinite(points).all():
        raise AnalysisError("the features have values that are not finite")
    if deviation.max() <= 1e-9:
        raise AnalysisError("no feature varies between agents or windows: there is nothing to cluster")
    return np.asarray((values - points.mean(axis=0)) / np.where(deviation > 1e-9, deviation, np.inf))


def _agent_clusters(
    x: np.ndarray, episode: np.ndarray, n_shuffles: int, rng: np.random.Generator
) -> tuple[np.ndarray, Clustering]:
    """Team `[agent]` from `[window, agent, feature]`, against identities shuffled in each episode."""
    chosen = rng.permutation(len(x))[: max(2, MAX_POINTS // x.shape[1])]
    sample, number = x[chosen], _numbered(episode[chosen])
    team, silhouette = _best_teams(sample)
    orders = (np.argsort(rng.random((number.max() + 1, x.shape[1])), axis=1)[number] for _ in range(n_shuffles))
    null = np.array([_best_teams(np.take_along_axis(sample, order[:, :, None], axis=1))[1] for order in orders])
    n = int(team.max()) + 1
    agreement = [adjusted_rand_score(_teams(x[a], n), _teams(x[b], n)) for a, b in _halves(episode, rng)]
    return team, _clustering(n, silhouette, null, agreement if n < len(team) else None)


def _best_teams(x: np.ndarray) -> tuple[np.ndarray, float]:
    """The teams `[agent]` with the best silhouette of the single windows `[window, agent, feature]`."""
    distances = squareform(pdist(x.reshape(-1, x.shape[2])))
    best, best_score = np.zeros(x.shape[1], int), -np.inf
    for n in range(2, x.shape[1] + 1):
        team = _teams(x, n)
        if len(np.unique(team)) < 2:
            continue
        score = float(silhouette_score(distances, np.tile(team, len(x)), metric="precomputed"))
        if score > best_score + 1e-9:
            best, best_score = team, score
    return best, max(best_score, -1.0)


def _teams(x: np.ndarray, n: int) -> np.ndarray:
    """At most n teams `[agent]` by average linkage, numbered in the agents' order."""
    return _numbered(fcluster(linkage(x.mean(axis=0), "average"), n, "maxclust"))


def _numbered(values: np.ndarray) -> np.ndarray:
    """Each value's number, from 0 in the order of their first appearance."""
    _, first, index = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[index])


def _principal_components(points: np.ndarray) -> np.ndarray:
    """`[point, component]`, at most 10 components, without those of negligible variance."""
    u, values, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    relevant = values > 1e-6 * values[0]
    return np.asarray((u * values)[:, relevant][:, :MAX_COMPONENTS])


def _state_clusters(
    points: np.ndarray, episode: np.ndarray, max_roles: int, n_shuffles: int, rng: np.random.Generator
) -> tuple[np.ndarray, Clustering]:
    """Role `[point]` of points `[point, component]`, against one Gaussian cloud with the same variances."""
    sample = points[rng.permutation(len(points))[:MAX_POINTS]]
    clusters, silhouette = _best_k_means(sample, max_roles, rng)
    role = clusters.predict(points)
    deviation = sample.std(axis=0)
    clouds = (rng.standard_normal(sample.shape) * deviation for _ in range(n_shuffles))
    null = np.array([_best_k_means(cloud, max_roles, rng)[1] for cloud in clouds])
    agreement = []
    for first, second in _halves(episode, rng):
        a, b = (_k_means(points[half], clusters.n_clusters, rng) for half in (first, second))
        agreement.append(adjusted_rand_score(a.predict(sample), b.predict(sample)))
    order = np.argsort(np.argsort(-np.bincount(role, minlength=clusters.n_clusters)))  # role 0 is the most frequent
    gap = gap_between(sample, clusters.labels_)
    return order[role], _clustering(clusters.n_clusters, silhouette, null, agreement, gap)


def _clustering(
    n: int, silhouette: float, null: np.ndarray, agreement: Sequence[float] | None, gap: float | None = None
) -> Clustering:
    p_value = p_value_above(silhouette, null)
    stability = None if agreement is None else float(np.mean(agreement))
    return Clustering(n, silhouette, float(null.mean()), p_value, stability, gap)


def gap_between(points: np.ndarray, role: np.ndarray) -> float:
    """5% quantile over points of (distance to the fifth neighbour in another cluster) / (the same in their own)."""
    distances = squareform(pdist(points))
    same_role = role[:, None] == role[None]
    k = min(GAP_NEIGHBOR, len(points) - 1)
    within = np.sort(np.where(same_role, distances, np.inf), axis=1)[:, k]  # the point itself is at index 0
    between = np.sort(np.where(same_role, np.inf, distances), axis=1)[:, k - 1]
    distinct = within > 1e-9 * distances.max()  # identical points have no gap
    valid = np.isfinite(within) & np.isfinite(between) & distinct
    return float(np.quantile(between[valid] / within[valid], 0.05)) if valid.any() else 0.0


def _best_k_means(points: np.ndarray, max_roles: int, rng: np.random.Generator) -> tuple[KMeans, float]:
    distances = squareform(pdist(points))
    candidates = []
    for n in range(2, min(max_roles, len(points) - 1) + 1):
        clusters = _k_means(points, n, rng)
        if len(np.unique(clusters.labels_)) > 1:
            silhouette = float(silhouette_score(distances, clusters.labels_, metric="precomputed"))
            candidates.append((clusters, silhouette))
    return max(candidates, key=lambda candidate: candidate[1])


def _k_means(points: np.ndarray, n: int, rng: np.random.Generator) -> KMeans:
    """n clusters, or as many as there are different points."""
    n_distinct = len(np.unique(points.round(6), axis=0))
    seed = int(rng.integers(2**31))
    return KMeans(min(n, n_distinct), n_init=2, max_iter=100, random_state=seed).fit(points)


def _halves(episode: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points `[point]` bool of each of two random halves of the episodes, N_SPLITS times."""
    numbers = np.unique(episode)
    for _ in range(N_SPLITS):
        first = np.isin(episode, rng.permutation(numbers)[: len(numbers) // 2])
        yield first, ~first


def _division(
    role: np.ndarray, episode: np.ndarray, t: np.ndarray, n_shuffles: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Mean number of different roles held at once, its chance level and a two-sided p-value.

    Args:
        role: `[window, agent]`. The null hypothesis permutes each agent's episodes independently.
        episode: `[window]`.
        t: `[window]`, its first step.
    """
    shuffle = EpisodeShuffle(episode, t)

    def n_different(roles: np.ndarray) -> float:
        ordered = np.sort(roles, axis=1)
        return float(1 + (np.diff(ordered, axis=1) != 0).sum(axis=1).mean())

    def independent() -> np.ndarray:
        return np.stack([shuffle.permute(of_agent, rng) for of_agent in role.T], axis=1)

    observed = n_different(role)
    null = np.array([n_different(independent()) for _ in range(max(n_shuffles, 100))])
    return observed, float(null.mean()), p_value_above(abs(observed - null.mean()), np.abs(null - null.mean()))

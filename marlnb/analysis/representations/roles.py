"""Roles: do agents differ for good (teams), and do they divide roles among them from moment to moment?

Agents that share one policy are interchangeable: whatever roles they have lie in the moments, not in who they are. So
two questions are asked, each against its own chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.representations.role_features import Stretches, behaviour_stretches, unit_stretches
from marlnb.analysis.representations.roles_result import Clustering, Roles
from marlnb.analysis.stats.bootstrap import p_value_above
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MOST_POINTS = 1000
"""A silhouette takes the square of it in distances."""
SPLITS = 10
NEIGHBOUR = 5
COMPONENTS = 10
FEW_EPISODES = 20


def roles(
    recording: Recording,
    *,
    site: str | None = None,
    agents: Sequence[str] | None = None,
    window: int | None = None,
    most_roles: int = 5,
    checkpoint: int | None = None,
    n_shuffles: int = 60,
    seed: int = 0,
) -> Roles:
    """Clusters agents, and what they are from moment to moment, on their units or on their behaviour.

    Of agents: their means over all episodes, joined by average linkage, into as many teams as give the best silhouette
    of the single stretches. Chance: agents' identities shuffled within every stretch. Of moments: k-means of all
    stretches of all agents, on the principal components. Chance: one Gaussian cloud with the same variances (Liu et al.
    2008, SigClust); and a gap between them, since a ring is no cloud and has no groups. Both must also come out alike
    in two halves of the episodes (adjusted Rand index above 0.5).

    Args:
        site: whose units are averaged; None: behaviour (frequencies of actions, changes of action, reward), which also
            compares agents of different groups.
        window: steps of a stretch; None: whole episodes.
        most_roles: at most so many roles of moments.
    Raises:
        AnalysisError: fewer than two agents; agents with different actions without a site; nothing that varies.
    """
    if n_shuffles < 20 or most_roles < 2:
        raise AnalysisError(f"roles need 20 shuffles and 2 roles; got {n_shuffles} and {most_roles}")
    if site is None:
        found = behaviour_stretches(recording, agents, window, checkpoint)
    else:
        found = unit_stretches(recording, site, agents, window, checkpoint)
    rng = np.random.default_rng(seed)
    x = _standardised(found.values)
    n_stretches, n_agents, n_features = x.shape
    team, of_agents = _agent_clusters(x, found.episode, n_shuffles, rng)
    reduced = _components(x.reshape(-1, n_features))
    role, of_states = _state_clusters(reduced, np.repeat(found.episode, n_agents), most_roles, n_shuffles, rng)
    held = role.reshape(n_stretches, n_agents)
    division, chance, p = _division(held, n_shuffles, rng)
    n_roles = int(role.max()) + 1
    return Roles(
        of="behaviour" if site is None else site,
        agents=found.agents,
        all_agents=recording.spec.agents,
        features=found.features,
        distances=_distances(x),
        team=team,
        agents_clustering=of_agents,
        stretch=np.repeat(np.arange(n_stretches), n_agents),
        who=np.tile(np.arange(n_agents), n_stretches),
        episode=np.repeat(found.episode, n_agents),
        t=np.repeat(found.t, n_agents),
        role=role,
        points=np.pad(reduced, ((0, 0), (0, 1)))[:, :2],
        states_clustering=of_states,
        profile=np.stack([x.reshape(-1, n_features)[role == k].mean(axis=0) for k in range(n_roles)]),
        taken=np.stack([np.bincount(column, minlength=n_roles) / n_stretches for column in held.T]),
        division=division,
        division_chance=chance,
        division_p=p,
        n_episodes=len(np.unique(found.episode)),
        warnings=(*_doubts(found), *repeats(recording, found.episode)),
    )


def _standardised(values: np.ndarray) -> np.ndarray:
    """Each feature with mean 0 and variance 1 over all points; features that never vary are 0."""
    flat = values.reshape(-1, values.shape[2])
    spread = flat.std(axis=0)
    if not np.isfinite(flat).all():
        raise AnalysisError("values that are not finite")
    if spread.max() <= 1e-9:
        raise AnalysisError("nothing varies between the agents or their stretches")
    return np.asarray((values - flat.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf))


def _distances(x: np.ndarray) -> np.ndarray:
    """`[agent, agent]`: root mean square over features of what the agents' means differ by."""
    return np.asarray(squareform(pdist(x.mean(axis=0))) / np.sqrt(x.shape[2]))


def _agent_clusters(
    x: np.ndarray, episode: np.ndarray, n_shuffles: int, rng: np.random.Generator
) -> tuple[np.ndarray, Clustering]:
    """`[agent]` clusters, beside those of agents whose identities are shuffled within every stretch."""
    kept = rng.permutation(len(x))[: max(2, MOST_POINTS // x.shape[1])]
    points = x[kept]
    team, silhouette = _best_teams(points)
    null = np.array([_best_teams(_renamed(points, rng))[1] for _ in range(n_shuffles)])
    n = int(team.max()) + 1
    agreement = []
    for first, second in _halves(episode, rng):
        agreement.append(adjusted_rand_score(_joined(x[first], n), _joined(x[second], n)))
    p = p_value_above(silhouette, null)
    return team, Clustering(n, silhouette, float(null.mean()), p, float(np.mean(agreement)))


def _renamed(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    order = np.argsort(rng.random(x.shape[:2]), axis=1)
    return np.take_along_axis(x, order[:, :, None], axis=1)


def _best_teams(x: np.ndarray) -> tuple[np.ndarray, float]:
    """Teams `[agent]` by average linkage, with the silhouette of the single stretches `[stretch, agent, feature]`."""
    distances = squareform(pdist(x.reshape(-1, x.shape[2])))
    best: tuple[np.ndarray, float] | None = None
    for n in range(2, x.shape[1] + 1):
        team = _joined(x, n)
        if len(np.unique(team)) < 2:
            continue
        score = float(silhouette_score(distances, np.tile(team, len(x)), metric="precomputed"))
        if best is None or score > best[1] + 1e-9:
            best = team, score
    return (np.zeros(x.shape[1], int), -1.0) if best is None else best


def _joined(x: np.ndarray, n: int) -> np.ndarray:
    """`[agent]` in `[0, n)`, numbered in the agents' order."""
    found = fcluster(linkage(x.mean(axis=0), "average"), n, "maxclust")
    _, first, number = np.unique(found, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[number])


def _components(flat: np.ndarray) -> np.ndarray:
    """`[point, component]`, principal components that matter most."""
    u, values, _ = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    kept = values > 1e-6 * values[0]
    return np.asarray((u * values)[:, kept][:, :COMPONENTS])


def _state_clusters(
    points: np.ndarray, episode: np.ndarray, most: int, n_shuffles: int, rng: np.random.Generator
) -> tuple[np.ndarray, Clustering]:
    kept = rng.permutation(len(points))[:MOST_POINTS]
    fitted, silhouette = _best_means(points[kept], most, rng)
    role = fitted.predict(points)
    spread = points[kept].std(axis=0)
    null = [
        _best_means(rng.standard_normal((len(kept), len(spread))) * spread, most, rng)[1] for _ in range(n_shuffles)
    ]
    agreement = []
    for first, second in _halves(episode, rng):
        one, other = (_means(points[half], fitted.n_clusters, rng) for half in (first, second))
        agreement.append(adjusted_rand_score(one.predict(points[kept]), other.predict(points[kept])))
    order = np.argsort(np.argsort(-np.bincount(role, minlength=fitted.n_clusters)))  # the most frequent role is 0
    p = p_value_above(silhouette, np.array(null))
    chance, stability = float(np.mean(null)), float(np.mean(agreement))
    gap = gap_between(points[kept], fitted.labels_)
    return order[role], Clustering(fitted.n_clusters, silhouette, chance, p, stability, gap)


def gap_between(points: np.ndarray, role: np.ndarray) -> float:
    """The 5% quantile over points of (distance to the fifth neighbour in another group) / (to that in one's own)."""
    distances = squareform(pdist(points))
    same = role[:, None] == role[None]
    k = min(NEIGHBOUR, len(points) - 1)
    own = np.sort(np.where(same, distances, np.inf), axis=1)[:, k]
    other = np.sort(np.where(same, np.inf, distances), axis=1)[:, k - 1]
    known = (
        np.isfinite(own) & np.isfinite(other) & (own > 1e-9 * distances.max())
    )  # points that lie upon each other have no gap
    return float(np.quantile(other[known] / own[known], 0.05)) if known.any() else 0.0


def _best_means(points: np.ndarray, most: int, rng: np.random.Generator) -> tuple[KMeans, float]:
    distances = squareform(pdist(points))
    found = []
    for n in range(2, min(most, len(points) - 1) + 1):
        fitted = _means(points, n, rng)
        if len(np.unique(fitted.labels_)) > 1:
            found.append((fitted, float(silhouette_score(distances, fitted.labels_, metric="precomputed"))))
    return max(found, key=lambda pair: pair[1])


def _means(points: np.ndarray, n: int, rng: np.random.Generator) -> KMeans:
    """Of n groups, or of as many as there are different points."""
    distinct = len(np.unique(points.round(6), axis=0))
    return KMeans(min(n, distinct), n_init=2, max_iter=100, random_state=int(rng.integers(2**31))).fit(points)


def _halves(episode: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Which points `[point]` bool are in either half of the episodes, several times."""
    numbers = np.unique(episode)
    for _ in range(SPLITS):
        first = np.isin(episode, rng.permutation(numbers)[: len(numbers) // 2])
        yield first, ~first


def _division(held: np.ndarray, n_shuffles: int, rng: np.random.Generator) -> tuple[float, float, float]:
    """Different roles at once `[stretch, agent]` on average; the same if each agent's were of another stretch."""

    def distinct(roles: np.ndarray) -> float:
        ordered = np.sort(roles, axis=1)
        return float(1 + (np.diff(ordered, axis=1) != 0).sum(axis=1).mean())

    found = distinct(held)
    null = np.array([distinct(rng.permuted(held, axis=0)) for _ in range(max(n_shuffles, 100))])
    return found, float(null.mean()), p_value_above(abs(found - null.mean()), np.abs(null - null.mean()))


def _doubts(found: Stretches) -> Iterator[str]:
    n = len(np.unique(found.episode))
    if n < FEW_EPISODES:
        yield f"only {n} episodes"

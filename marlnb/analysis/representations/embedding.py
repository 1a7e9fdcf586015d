"""Embed the units of many time steps in two dimensions (PCA or UMAP), coloured by a label."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import pandas as pd
import torch
from sklearn.manifold import trustworthiness

from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.views import Units, View, site_agents
from marlnb.analysis.results import Result
from marlnb.errors import AnalysisError, unknown
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.collect.threads import torch_threads
from marlnb.values import checked_number

EmbeddingMethod = Literal["pca", "umap"]
DIMENSIONS = 2
BATCH_ROWS = 8192
N_CHECKED_POINTS = 1000
MIN_TRUSTWORTHINESS = 0.85
MIN_POINTS = 100


@dataclass(frozen=True, eq=False, repr=False)
class Embedding(Result):
    """Points in two dimensions, one for each time step and agent.

    Attributes:
        method: pca or umap.
        site: the units' site.
        agents: agents with points.
        all_agents: all agents of the environment.
        points: `[point, dimension]`.
        episode: `[point]`.
        t: `[point]`.
        agent_index: `[point]`, index into `agents`.
        color: `[point]`, the label; NaN where it is unknown.
        color_name: the label's name; empty where the points are coloured by agent.
        color_names: names of the label's values.
        color_is_class: whether the label has classes and is no quantity.
        explained: `[dimension]`, share of the variance along each principal component; empty for UMAP.
        trust: trustworthiness in 0 to 1: whether neighbours in the embedding are neighbours among the units
            (Venna and Kaski 2001, as in scikit-learn).
        n_rows: time steps that the embedding was made from; the points are a sample of them, or all.
        warnings: reasons not to trust the result.
    """

    MAX_HTML_ROWS: ClassVar[int | None] = 8

    method: str
    site: str
    agents: tuple[str, ...]
    all_agents: tuple[str, ...]
    points: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    agent_index: np.ndarray
    color: np.ndarray
    color_name: str
    color_names: tuple[str, ...]
    color_is_class: bool
    explained: np.ndarray
    trust: float
    n_rows: int
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One row for each point."""
        coordinates = {f"x{k + 1}": column for k, column in enumerate(self.points.T)}
        agents = np.array(self.agents)[self.agent_index]
        color = {self.color_name or "color": self.color}
        return pd.DataFrame({**coordinates, "agent": agents, "episode": self.episode, "t": self.t, **color})

    @property
    def verdict(self) -> str:
        """How much of the units the map shows; a map tests nothing."""
        explained = f"{self.explained.sum():.0%} of the units' variance, " if len(self.explained) else ""
        trusted = self.trust >= MIN_TRUSTWORTHINESS
        kept = "mostly" if trusted else "often not"
        return (
            f"A map of {self.site} ({self.method}, {len(self.points):,} of {self.n_rows:,} time steps of "
            f"{', '.join(self.agents)}) shows {explained}and neighbours on it are {kept} neighbours among the units "
            f"(trustworthiness {self.trust:.2f}); it is a picture and tests nothing."
        )


def embed(
    recording: RecordingLike,
    *,
    site: str,
    method: EmbeddingMethod = "pca",
    color: Label | None = None,
    agents: str | Sequence[str] | None = None,
    checkpoint: int | None = None,
    max_points: int = 4000,
    n_neighbors: int = 15,
    seed: int = 0,
) -> Embedding:
    """An embedding of a site's units: principal components of all time steps, or UMAP of a sample of them.

    All agents of a site are embedded together, so that they can be compared. PCA is exact and reads any number of rows
    in batches. UMAP (McInnes et al. 2018, arXiv:1802.03426; the extra `umap`) preserves neighbourhoods only: distances
    between its clusters and their sizes carry no meaning. The trustworthiness (Venna and Kaski 2001) is near 1 if few
    neighbours on the map are far apart among the units.

    Args:
        color: a label as in `decode`, a feature that the agent observes, `t` or `action`; None: the agent.
        agents: one name or several; None for all agents of the site.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        max_points: drawn at random; UMAP is fitted to these, PCA to all rows.
        n_neighbors: UMAP's, and of the trustworthiness.
        seed: of the sample and of UMAP.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: an unknown method; units that never vary; fewer rows than neighbours; UMAP is not installed.
    """
    recording = opened_recording(recording)
    if method not in get_args(EmbeddingMethod):
        raise AnalysisError(unknown("method of embedding", method, get_args(EmbeddingMethod)))
    max_points = checked_number(max_points, int, "max_points", ge=10)
    n_neighbors = checked_number(n_neighbors, int, "n_neighbors", ge=2)
    seed = checked_number(seed, int, "seed", ge=0)
    names = site_agents(recording, site, agents)
    views = [View(recording, site, agent, checkpoint=checkpoint).open() for agent in names]
    n_rows = sum(map(len, views))
    rng = np.random.default_rng(seed)
    sample = _Sample.draw(views, max_points, rng)
    x = np.concatenate([view.at(rows) for view, rows in zip(views, sample.rows)]).astype(np.float64)
    mean, components, explained = _principal_components(views, n_rows)
    if method == "pca":
        points = (x - mean) @ components
    else:
        points, explained = _umap(x, n_neighbors, seed), np.empty(0)
    labels = None if color is None else [row_values(view, color) for view in views]
    trust = _trustworthiness(x, points, n_neighbors, rng)
    return Embedding(
        method=method,
        site=site,
        agents=tuple(view.agent for view in views),
        all_agents=views[0].agents,
        points=points,
        episode=sample.of(view.episode for view in views),
        t=sample.of(view.t for view in views),
        agent_index=sample.agent_index,
        color=sample.agent_index.astype(float) if labels is None else sample.of(map(_numbers, labels)),
        color_name="" if labels is None else labels[0].name,
        color_names=() if labels is None else labels[0].names,
        color_is_class=labels is None or labels[0].is_class,
        explained=explained,
        trust=trust,
        n_rows=n_rows,
        warnings=tuple(_warnings(method, len(points), trust)),
    )


@dataclass(frozen=True)
class _Sample:
    """Rows drawn at random from those of all agents together.

    Attributes:
        agent_index: `[point]`.
        rows: of each agent, indices among its rows.
    """

    agent_index: np.ndarray
    rows: list[np.ndarray]

    @staticmethod
    def draw(views: Sequence[Units], max_points: int, rng: np.random.Generator) -> _Sample:
        lengths = [len(view) for view in views]
        sample = np.sort(rng.permutation(sum(lengths))[:max_points])
        ends = np.cumsum(lengths)
        agent_index = np.searchsorted(ends, sample, side="right")
        row = sample - (ends - lengths)[agent_index]
        return _Sample(agent_index, [row[agent_index == k] for k in range(len(views))])

    def of(self, by_agent: Iterable[np.ndarray]) -> np.ndarray:
        """`[point]`, of values `[row]` of each agent."""
        return np.concatenate([values[rows] for values, rows in zip(by_agent, self.rows)])


def _trustworthiness(x: np.ndarray, points: np.ndarray, n_neighbors: int, rng: np.random.Generator) -> float:
    """Of the map `[point, coordinate]` of units `[point, unit]`, at points drawn at random."""
    checked = rng.permutation(len(x))[:N_CHECKED_POINTS]
    n_neighbors = min(n_neighbors, (len(checked) - 1) // 2)
    return float(trustworthiness(x[checked], points[checked], n_neighbors=n_neighbors))


def _principal_components(views: Sequence[Units], n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean `[unit]`, components `[unit, dimension]` and their share of the variance, in two passes over all rows."""
    n_units = views[0].n_units
    mean, products = np.zeros(n_units), np.zeros((n_units, n_units))
    for x in _batches(views):
        mean += x.sum(axis=0) / n_rows
    if not np.isfinite(mean).all():
        raise AnalysisError(f"{views[0].name} has values that are not finite")
    for x in _batches(views):
        products += (x - mean).T @ (x - mean)
    variances, vectors = np.linalg.eigh(products)
    if variances[-1] <= 1e-12 * n_rows:
        raise AnalysisError(f"{views[0].name} never varies: there is nothing to embed")
    components = vectors[:, ::-1][:, :DIMENSIONS]
    # an eigenvector's sign is arbitrary: make its largest entry positive, so that figures are reproducible
    sign = np.sign(components[np.abs(components).argmax(axis=0), np.arange(components.shape[1])])
    return mean, components * sign, np.maximum(variances[::-1][:DIMENSIONS], 0) / variances.clip(min=0).sum()


def _batches(views: Sequence[Units]) -> Iterator[np.ndarray]:
    for view in views:
        for start in range(0, len(view), BATCH_ROWS):
            yield view.at(np.arange(start, min(start + BATCH_ROWS, len(view)))).astype(np.float64)


def _umap(x: np.ndarray, n_neighbors: int, seed: int) -> np.ndarray:
    if len(x) <= n_neighbors:
        raise AnalysisError(f"UMAP with n_neighbors={n_neighbors} needs more than {n_neighbors} points; got {len(x)}")
    try:
        with warnings.catch_warnings():  # umap warns that tensorflow is missing, which is not needed here
            warnings.simplefilter("ignore", ImportWarning)
            import umap
    except ImportError:
        raise AnalysisError("UMAP is not installed: pip install 'marlnb[umap]', or use method='pca'") from None
    # a seed allows one thread only; n_jobs=1 avoids umap's warning about that
    model = umap.UMAP(n_components=DIMENSIONS, n_neighbors=n_neighbors, random_state=seed, n_jobs=1)
    with torch_threads(torch.get_num_threads()):  # umap's numba sets OpenMP's threads, which torch uses too
        return np.asarray(model.fit_transform(x.astype(np.float32)), dtype=np.float64)


def _numbers(label: RowValues) -> np.ndarray:
    """Values `[row]`; NaN where they are unknown."""
    return np.where(label.known, label.values.astype(np.float64), np.nan)


def _warnings(method: str, n_points: int, trust: float) -> Iterator[str]:
    if n_points < MIN_POINTS:
        yield f"only {n_points} points"
    if method == "umap" and trust < MIN_TRUSTWORTHINESS:
        yield f"neighbours in the embedding are often not neighbours among the units (trustworthiness {trust:.2f})"

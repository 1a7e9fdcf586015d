"""Maps: units of many moments in two dimensions, with a label to colour them by."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from sklearn.manifold import trustworthiness

from marlnb.analysis.data.labels import Label
from marlnb.analysis.data.row_values import RowValues, row_values
from marlnb.analysis.data.views import Units, View, site_agents
from marlnb.analysis.results import doubts, shown_as_html
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MapMethod = Literal["pca", "umap"]
BATCH_ROWS = 8192
CHECKED_POINTS = 1000
LEAST_TRUST = 0.85
FEW_POINTS = 100


@dataclass(frozen=True)
class Embedding:
    """Points of a map, one a moment and agent.

    Attributes:
        points: `[point, dimension]`; episode, t: `[point]`; who: `[point]`, place among `agents`.
        color: `[point]`, the label; NaN where it is not known; color_name, color_names: its name, its values' names.
        explained: `[dimension]`, share of all variance along each principal component; empty for UMAP.
        trust: in 0 to 1, how far neighbours on the map are neighbours among the units (sklearn's trustworthiness).
        n_rows: moments that the map was made from; the points are a sample of them, or all.
    """

    method: str
    site: str
    agents: tuple[str, ...]
    all_agents: tuple[str, ...]
    points: np.ndarray
    episode: np.ndarray
    t: np.ndarray
    who: np.ndarray
    color: np.ndarray
    color_name: str
    color_names: tuple[str, ...]
    color_is_class: bool
    explained: np.ndarray
    trust: float
    n_rows: int
    warnings: tuple[str, ...] = ()

    def table(self) -> pd.DataFrame:
        """One line a point."""
        columns = {f"x{k + 1}": column for k, column in enumerate(self.points.T)}
        agents = np.array(self.agents)[self.who]
        name = self.color_name or "color"
        return pd.DataFrame({**columns, "agent": agents, "episode": self.episode, "t": self.t, name: self.color})

    def to_json(self) -> dict[str, Any]:
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self).items()}

    def __repr__(self) -> str:
        flag = doubts(self.warnings)
        held = f", {self.explained.sum():.0%} of the variance" if len(self.explained) else ""
        return (
            f"Embedding({self.site}, {self.method}: {len(self.points):,} of {self.n_rows:,} moments{held}, "
            f"trustworthiness {self.trust:.2f}{flag})"
        )

    def _repr_html_(self) -> str:
        return shown_as_html(repr(self), self.warnings, self.table(), rows=8)


def embed(
    recording: Recording,
    *,
    site: str,
    method: MapMethod = "pca",
    color: Label | None = None,
    agents: Sequence[str] | None = None,
    checkpoint: int | None = None,
    dimensions: int = 2,
    most_points: int = 4000,
    neighbours: int = 15,
    min_distance: float = 0.1,
    seed: int = 0,
) -> Embedding:
    """A map of a site's units: principal components of all moments, or UMAP of a sample of them.

    The agents that share a site are put on one map, so that they can be compared. PCA reads any number of rows in
    batches and is exact. UMAP (the extra `umap`) keeps neighbourhoods only: distances between its clusters, and their
    sizes, say nothing.

    Args:
        color: as `decode` takes a label, or a feature the agent observes, `t` or `action`; None: who it is.
        most_points: of the map, drawn at random; UMAP is fitted to these, PCA to all rows.
        neighbours, min_distance: UMAP's n_neighbors and min_dist. seed: of the sample and of UMAP.
    Raises:
        AnalysisError: an unknown method; units that never vary; fewer rows than neighbours; UMAP is not installed.
    """
    if method not in ("pca", "umap"):
        raise AnalysisError(unknown("method of embedding", method, ("pca", "umap")))
    if dimensions < 1 or most_points < 10:
        raise AnalysisError(f"a map has 1 dimension and 10 points or more; got {dimensions} and {most_points}")
    views = [
        View(recording, site, agent, checkpoint=checkpoint).open() for agent in site_agents(recording, site, agents)
    ]
    n_rows = sum(map(len, views))
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(n_rows)[:most_points])
    who, place = _where(views, chosen)
    x = np.concatenate([view.at(place[who == k]) for k, view in enumerate(views)]).astype(np.float64)
    mean, directions, explained = _principal(views, n_rows, dimensions)
    if method == "pca":
        points = (x - mean) @ directions
    else:
        points, explained = _umap(x, dimensions, neighbours, min_distance, seed), np.empty(0)
    values = [None if color is None else row_values(view, color) for view in views]
    trust = _trust(x, points, neighbours, rng)
    return Embedding(
        method=method,
        site=site,
        agents=tuple(view.agent for view in views),
        all_agents=views[0].agents,
        points=points,
        episode=np.concatenate([view.episode[place[who == k]] for k, view in enumerate(views)]),
        t=np.concatenate([view.t[place[who == k]] for k, view in enumerate(views)]),
        who=who,
        color=_colours(values, who, place),
        color_name="" if values[0] is None else values[0].name,
        color_names=_names(values),
        color_is_class=values[0] is None or values[0].is_class,
        explained=explained,
        trust=trust,
        n_rows=n_rows,
        warnings=_doubts(method, len(points), trust),
    )


def _where(views: Sequence[Units], chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whose row each of the chosen ones is, and its place among those."""
    ends = np.cumsum([len(view) for view in views])
    who = np.searchsorted(ends, chosen, side="right")
    return who, chosen - (ends - [len(view) for view in views])[who]


def _principal(views: Sequence[Units], n_rows: int, dimensions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean `[unit]`, components `[unit, dimension]` and their share of the variance, over all rows in two readings."""
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
        raise AnalysisError(f"{views[0].name} never varies: there is nothing to map")
    found = vectors[:, ::-1][:, :dimensions]
    sign = np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
    return mean, found * sign, np.maximum(variances[::-1][:dimensions], 0) / variances.clip(min=0).sum()


def _batches(views: Sequence[Units]) -> Iterator[np.ndarray]:
    for view in views:
        for start in range(0, len(view), BATCH_ROWS):
            yield view.at(np.arange(start, min(start + BATCH_ROWS, len(view)))).astype(np.float64)


def _umap(x: np.ndarray, dimensions: int, neighbours: int, min_distance: float, seed: int) -> np.ndarray:
    if len(x) <= neighbours:
        raise AnalysisError(f"UMAP with {neighbours} neighbours needs more than {len(x)} points")
    try:
        with warnings.catch_warnings():  # umap says that tensorflow is missing, which nothing here needs
            warnings.simplefilter("ignore", ImportWarning)
            import umap
    except ImportError:
        raise AnalysisError("UMAP is not installed: pip install 'marlnb[umap]', or method='pca'") from None
    # a seed allows one thread only; saying so oneself spares umap's warning
    fitted = umap.UMAP(
        n_components=dimensions, n_neighbors=neighbours, min_dist=min_distance, random_state=seed, n_jobs=1
    )
    return np.asarray(fitted.fit_transform(x.astype(np.float32)), dtype=np.float64)


def _trust(x: np.ndarray, points: np.ndarray, neighbours: int, rng: np.random.Generator) -> float:
    kept = rng.permutation(len(x))[:CHECKED_POINTS]
    n = min(neighbours, (len(kept) - 1) // 2)
    return float(trustworthiness(x[kept], points[kept], n_neighbors=n))


def _colours(values: Sequence[RowValues | None], who: np.ndarray, place: np.ndarray) -> np.ndarray:
    parts = []
    for k, told in enumerate(values):
        at = place[who == k]
        if told is None:
            parts.append(np.full(len(at), float(k)))
        else:
            parts.append(np.where(told.known[at], told.values[at].astype(np.float64), np.nan))
    return np.concatenate(parts)


def _names(values: Sequence[RowValues | None]) -> tuple[str, ...]:
    told = values[0]
    return () if told is None else told.names


def _doubts(method: str, n: int, trust: float) -> tuple[str, ...]:
    notes = []
    if n < FEW_POINTS:
        notes.append(f"only {n} points")
    if method == "umap" and trust < LEAST_TRUST:
        notes.append(f"neighbours on the map are often none among the units (trustworthiness {trust:.2f})")
    return tuple(notes)

"""Similarity of the units of two sites, agents, seeds or checkpoints at the same time steps (CKA, CCA, Procrustes)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.views import Units, View, as_view, match_recorded_sites, site_agents
from marlnb.analysis.representations.similarity_result import Similarity, SimilarityMatrix
from marlnb.analysis.results import few_episodes_warning
from marlnb.analysis.stats.bootstrap import (
    checked_resampling,
    episode_index,
    half_sample_interval,
    half_samples,
    p_value_above,
)
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.similarity_measures import SimilarityMethod, SimilaritySums, block_sums, similarity_function
from marlnb.errors import AnalysisError, unknown
from marlnb.recording.file.opened import RecordingLike, opened_recording

if TYPE_CHECKING:
    ViewLike = View | tuple[RecordingLike, str] | tuple[RecordingLike, str, str]

BATCH_ROWS = 8192
MAX_BLOCKS = 64
"""Sums are held for at most this many blocks of episodes."""
MIN_ROWS_PER_UNIT = 10
MIN_EPISODES = 4
CCA_METHODS = ("cca", "svcca", "pwcca")


def similarity(
    a: ViewLike,
    b: ViewLike,
    *,
    method: SimilarityMethod = "cka",
    n_shuffles: int = 20,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> Similarity:
    """How similar the units of two views are, with an interval over episodes and the score of shuffled episodes.

    Both views must be of the same time steps: sites or agents of one recording, or one recording's observations given
    to another run's policies (`mnb.View(recording, site, agent, policy_source=other_run, checkpoint=...)`), which
    compares seeds and checkpoints. Rows are read in batches, so a recording may be larger than memory.

    Linear CKA of centred activations X `[row, p]` and Y `[row, q]` is `|Y'X|²_F / (|X'X|_F |Y'Y|_F)` (Kornblith et al.
    2019, arXiv:1905.00414); `marlnb.analysis.stats.similarity_measures` has the other measures.

    Args:
        a: `mnb.View`, or (recording, site), or (recording, site, agent).
        b: the same.
        method: cka, unbiased_cka (does not rise with few rows), cca (mean canonical correlation), svcca, pwcca
            (weighted by a's units, so not symmetric) or procrustes.
        n_shuffles: pairings of each episode of a with another one of b; each reads the rows once more.
        n_bootstrap: random halves of the episodes, for the interval.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: views of different time steps; an unknown method; a site that never varies; fewer than 4
            episodes.
    """
    return compare_units(as_view(a).open(), as_view(b).open(), method, n_shuffles, n_bootstrap, seed)


def similarity_matrix(
    views: RecordingLike | Sequence[ViewLike],
    against: RecordingLike | Sequence[ViewLike] | None = None,
    *,
    sites: str | Sequence[str] | None = None,
    agents: str | Sequence[str] | None = None,
    method: SimilarityMethod = "cka",
    n_shuffles: int = 5,
    n_bootstrap: int = 100,
    seed: int = 0,
) -> SimilarityMatrix:
    """The similarity of each view to each other one.

    Args:
        views: views; or a recording or its path, of which each agent at each of `sites` is a view.
        against: the columns; None: the same as the rows.
        sites: of a recording, names or globs; None for all.
        agents: of a recording, one name or several; None for all agents of a site.
        method: as in `similarity`.
        n_shuffles: as in `similarity`.
        n_bootstrap: as in `similarity`.
    Raises:
        ConfigError, AnalysisError: as in `similarity`.
    """
    rows = _open(views, sites, agents)
    columns = rows if against is None else _open(against, sites, agents)
    cells: dict[tuple[int, int], Similarity] = {}
    for i, left in enumerate(rows):
        for j, right in enumerate(columns):
            if against is None and j < i and method != "pwcca":
                cells[i, j] = cells[j, i]
            else:
                cells[i, j] = compare_units(left, right, method, n_shuffles, n_bootstrap, seed)

    def matrix(name: str) -> np.ndarray:
        return np.array([[getattr(cells[i, j], name) for j in range(len(columns))] for i in range(len(rows))])

    return SimilarityMatrix(
        method=method,
        rows=tuple(view.name for view in rows),
        columns=tuple(view.name for view in columns),
        values=matrix("score"),
        **{name: matrix(name) for name in ("low", "high", "shuffled", "p_value")},
        n_shuffles=n_shuffles,
        n_episodes=min(cell.n_episodes for cell in cells.values()),
        warnings=tuple(dict.fromkeys(warning for cell in cells.values() for warning in cell.warnings)),
    )


def _open(
    views: RecordingLike | Sequence[ViewLike], sites: str | Sequence[str] | None, agents: str | Sequence[str] | None
) -> list[Units]:
    if isinstance(views, Sequence) and not isinstance(views, str):
        if sites is not None or agents is not None:
            raise AnalysisError("sites= and agents= choose views of a recording; these views have their own")
        if not views:
            raise AnalysisError("there are no views to compare: got an empty list")
        return [as_view(view).open() for view in views]
    recording = opened_recording(views)
    names = recording.sites if sites is None else match_recorded_sites(recording, sites)
    return [View(recording, site, agent).open() for site in names for agent in site_agents(recording, site, agents)]


def compare_units(
    left: Units, right: Units, method: SimilarityMethod, n_shuffles: int, n_bootstrap: int, seed: int
) -> Similarity:
    """As `similarity`, of views that are open."""
    if method not in get_args(SimilarityMethod):
        raise AnalysisError(unknown("method of similarity", method, get_args(SimilarityMethod)))
    n_shuffles, n_bootstrap, seed = checked_resampling(n_shuffles, n_bootstrap, seed, min_shuffles=1)
    at_left, at_right = _shared_steps(left, right)
    episode = left.episode[at_left]
    numbers, index = episode_index(episode)
    if len(numbers) < MIN_EPISODES:
        raise AnalysisError(f"intervals over halves of the episodes need {MIN_EPISODES} episodes; got {len(numbers)}")
    rng = np.random.default_rng(seed)
    shuffle = EpisodeShuffle(episode, left.t[at_left])
    block = (rng.permutation(len(numbers)) % MAX_BLOCKS)[index]
    n_blocks = min(MAX_BLOCKS, len(numbers))
    score_of = similarity_function(method)

    def sums_of(paired: np.ndarray, blocks: np.ndarray, n: int) -> SimilaritySums:
        batches = (slice(start, start + BATCH_ROWS) for start in range(0, len(at_left), BATCH_ROWS))
        pairs = ((left.at(at_left[rows]), right.at(paired[rows]), blocks[rows]) for rows in batches)
        return block_sums(pairs, left.n_units, right.n_units, n)

    def shuffled_score() -> float:
        paired = shuffle.permute(at_right, rng)
        return score_of(sums_of(paired, np.zeros_like(block), 1).weighted(np.ones(1)))

    sums = sums_of(at_right, block, n_blocks)
    total = sums.weighted(np.ones(n_blocks))
    _check_varies(left, total.xx, total.x, len(episode))
    _check_varies(right, total.yy, total.y, len(episode))
    score = score_of(total)
    halves = np.array([score_of(sums.weighted(blocks)) for blocks in half_samples(n_blocks, n_bootstrap, rng)])
    low, high = half_sample_interval(score, halves, n_blocks)
    null = np.array([shuffled_score() for _ in range(n_shuffles)])
    return Similarity(
        method=method,
        a=left.name,
        b=right.name,
        score=score,
        low=low,
        high=min(high, 1.0),
        shuffled=float(null.mean()),
        shuffled_high=float(null.max()),
        p_value=p_value_above(score, null),
        n_shuffles=n_shuffles,
        n_rows=len(episode),
        n_episodes=len(numbers),
        a_units=left.n_units,
        b_units=right.n_units,
        warnings=(
            *_warnings(method, len(episode), len(numbers), left.n_units + right.n_units),
            *duplicate_episode_warnings(left.source.recording, episode),
        ),
    )


def _shared_steps(left: Units, right: Units) -> tuple[np.ndarray, np.ndarray]:
    """Positions in both of the time steps that both have."""
    a, b = left.source.recording, right.source.recording
    if a.path.absolute() != b.path.absolute():
        raise AnalysisError(
            f"{a.path} and {b.path} hold different time steps, so their units cannot be compared row by row; give one "
            "recording's observations to the other's policies: View(recording, site, agent, policy_source=run, "
            "checkpoint=...)"
        )
    shared, at_left, at_right = np.intersect1d(left.index, right.index, assume_unique=True, return_indices=True)
    if not len(shared):
        raise AnalysisError(f"{left.name} and {right.name} have no time step in common")
    return at_left, at_right


def _check_varies(units: Units, products: np.ndarray, total: np.ndarray, n: int) -> None:
    with np.errstate(invalid="ignore"):  # inf - inf becomes NaN, which is reported below
        variance = np.diag(products) / n - (total / n) ** 2
    if not np.isfinite(variance).all():
        raise AnalysisError(f"{units.name} has values that are not finite")
    if variance.max() <= 1e-12:
        raise AnalysisError(f"{units.name} never varies: there is nothing to compare")


def _warnings(method: str, n_rows: int, n_episodes: int, n_units: int) -> Iterator[str]:
    yield from few_episodes_warning(n_episodes)
    if method in CCA_METHODS and n_rows < MIN_ROWS_PER_UNIT * n_units:
        yield (
            f"{n_rows} rows for {n_units} units: canonical correlations rise with the number of units; use "
            f"{MIN_ROWS_PER_UNIT * n_units} rows, or method='unbiased_cka'"
        )

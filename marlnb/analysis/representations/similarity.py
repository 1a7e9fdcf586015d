"""Similarity: how alike the units of two sites, agents, seeds or checkpoints are, at the same moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np

from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.data.views import Units, View, as_view, site_agents
from marlnb.analysis.representations.similarity_result import Similarity, SimilarityMatrix
from marlnb.analysis.stats.bootstrap import episode_places, half_sample_interval, half_samples, p_value_above
from marlnb.analysis.stats.linear_models import permute_by_episode
from marlnb.analysis.stats.similarity_measures import Method, Sums, block_sums, measure
from marlnb.errors import AnalysisError, unknown

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

    Viewed = View | tuple[Recording, str] | tuple[Recording, str, str]

BATCH_ROWS = 8192
BLOCKS = 64
"""Sums are kept for at most so many blocks of episodes."""
ROWS_A_UNIT = 10
FEW_EPISODES = 20
CCA_FAMILY = ("cca", "svcca", "pwcca")


def similarity(
    a: Viewed, b: Viewed, *, method: Method = "cka", n_shuffles: int = 20, repetitions: int = 200, seed: int = 0
) -> Similarity:
    """How alike the units of two views are, with an interval over episodes and what shuffled episodes give.

    Both must be of the same moments: sites or agents of one recording, or one recording's observations shown to
    another run's policies (`mnb.View(recording, site, agent, subject=other_run, checkpoint=...)`), which compares
    seeds and checkpoints. Rows are read in batches: a recording may be larger than memory.

    Args:
        a, b: `mnb.View`, or (recording, site), or (recording, site, agent).
        method: cka, unbiased_cka (does not rise with few rows), cca (mean canonical correlation), svcca, pwcca
            (weighted by a's units, so not symmetric) or procrustes.
        n_shuffles: pairings of each episode of a with another one of b; each reads the rows once more.
        repetitions: halves of the episodes that the interval is of.
    Raises:
        AnalysisError: views of different moments; an unknown method; a site that never varies; fewer than 4 episodes.
    """
    if method not in get_args(Method):
        raise AnalysisError(unknown("method of similarity", method, get_args(Method)))
    if n_shuffles < 1 or repetitions < 20:
        raise AnalysisError(f"similarity needs 1 shuffle and 20 repetitions; got {n_shuffles} and {repetitions}")
    left, right = as_view(a).open(), as_view(b).open()
    return _compare(left, right, method, n_shuffles, repetitions, seed)


def similarity_matrix(
    views: Recording | Sequence[Viewed],
    against: Recording | Sequence[Viewed] | None = None,
    *,
    sites: str | Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
    method: Method = "cka",
    n_shuffles: int = 5,
    repetitions: int = 100,
    seed: int = 0,
) -> SimilarityMatrix:
    """Every view against every other.

    Args:
        views: views, or a recording, of which every agent's view of every one of `sites` is taken.
        against: the columns; None: the same as the rows.
        sites: names or globs; None: all. agents: those to take; None: all that a site is of. For recordings only.
    Raises:
        As `similarity`.
    """
    rows = [as_view(view).open() for view in _views(views, sites, agents)]
    columns = rows if against is None else [as_view(view).open() for view in _views(against, sites, agents)]
    found: dict[tuple[int, int], Similarity] = {}
    for i, left in enumerate(rows):
        for j, right in enumerate(columns):
            if against is None and j < i and method != "pwcca":
                found[i, j] = found[j, i]
            else:
                found[i, j] = _compare(left, right, method, n_shuffles, repetitions, seed)

    def filled(name: str) -> np.ndarray:
        return np.array([[getattr(found[i, j], name) for j in range(len(columns))] for i in range(len(rows))])

    notes = [note for one in found.values() for note in one.warnings]
    return SimilarityMatrix(
        method=method,
        rows=tuple(view.name for view in rows),
        columns=tuple(view.name for view in columns),
        values=filled("score"),
        low=filled("low"),
        high=filled("high"),
        shuffled=filled("shuffled"),
        p_value=filled("p_value"),
        warnings=tuple(dict.fromkeys(notes)),
    )


def _views(
    given: Recording | Sequence[Viewed], sites: str | Sequence[str] | None, agents: Sequence[str] | None
) -> list[Viewed]:
    from marlnb.recording.file.reader import Recording

    if not isinstance(given, Recording):
        if sites is not None or agents is not None:
            raise AnalysisError("sites and agents choose views of a recording; these views name their own")
        return list(given)
    wanted = given.sites if sites is None else _matching(given, sites)
    return [View(given, site, agent) for site in wanted for agent in site_agents(given, site, agents)]


def _matching(recording: Recording, sites: str | Sequence[str]) -> list[str]:
    from fnmatch import fnmatchcase

    patterns = [sites] if isinstance(sites, str) else list(sites)
    for pattern in patterns:
        if not any(fnmatchcase(site, pattern) for site in recording.sites):
            raise AnalysisError(unknown("recorded site", pattern, recording.sites))
    return [site for site in recording.sites if any(fnmatchcase(site, pattern) for pattern in patterns)]


def _compare(left: Units, right: Units, method: Method, n_shuffles: int, repetitions: int, seed: int) -> Similarity:
    at_left, at_right = _same_moments(left, right)
    episode = left.episode[at_left]
    numbers, places = episode_places(episode)
    if len(numbers) < 4:
        raise AnalysisError(f"{len(numbers)} episodes; an interval over halves of them needs 4")
    rng = np.random.default_rng(seed)
    block = (rng.permutation(len(numbers)) % BLOCKS)[places]
    n_blocks = min(BLOCKS, len(numbers))
    score_of = measure(method)

    def summed(paired: np.ndarray, blocks: np.ndarray, n: int) -> Sums:
        return block_sums(_pairs(left, right, at_left, paired, blocks), left.n_units, right.n_units, n)

    def shuffled() -> float:
        paired = permute_by_episode(at_right, episode, rng)
        return score_of(summed(paired, np.zeros_like(block), 1).drawn(np.ones(1)))

    sums = summed(at_right, block, n_blocks)
    whole = sums.drawn(np.ones(n_blocks))
    _check_varies(left, whole.xx, whole.x, len(episode))
    _check_varies(right, whole.yy, whole.y, len(episode))
    score = score_of(whole)
    halves = np.array([score_of(sums.drawn(kept)) for kept in half_samples(n_blocks, repetitions, rng)])
    low, high = half_sample_interval(score, halves, n_blocks)
    null = np.array([shuffled() for _ in range(n_shuffles)])
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
        n_rows=len(episode),
        n_episodes=len(numbers),
        a_units=left.n_units,
        b_units=right.n_units,
        warnings=(
            *_doubts(method, len(episode), len(numbers), left.n_units + right.n_units),
            *repeats(left.source.recording, episode),
        ),
    )


def _pairs(
    left: Units, right: Units, at_left: np.ndarray, at_right: np.ndarray, block: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for start in range(0, len(at_left), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        yield left.at(at_left[part]), right.at(at_right[part]), block[part]


def _same_moments(left: Units, right: Units) -> tuple[np.ndarray, np.ndarray]:
    """Places in both of the moments that both have."""
    one, other = left.source.recording, right.source.recording
    if one.path.absolute() != other.path.absolute():
        raise AnalysisError(
            f"{one.path} and {other.path} are of different moments, whose units cannot be compared row by row; show "
            "one recording to the other's policies: View(recording, site, agent, subject=run, checkpoint=...)"
        )
    shared, at_left, at_right = np.intersect1d(left.index, right.index, assume_unique=True, return_indices=True)
    if not len(shared):
        raise AnalysisError(f"{left.name} and {right.name} share no moment")
    return at_left, at_right


def _check_varies(units: Units, products: np.ndarray, total: np.ndarray, n: int) -> None:
    with np.errstate(invalid="ignore"):  # inf less inf is told of below
        variance = np.diag(products) / n - (total / n) ** 2
    if not np.isfinite(variance).all():
        raise AnalysisError(f"{units.name} has values that are not finite")
    if variance.max() <= 1e-12:
        raise AnalysisError(f"{units.name} never varies: there is nothing to compare")


def _doubts(method: str, n_rows: int, n_episodes: int, n_units: int) -> Iterator[str]:
    if n_episodes < FEW_EPISODES:
        yield f"only {n_episodes} episodes; intervals are rough below {FEW_EPISODES}"
    if method in CCA_FAMILY and n_rows < ROWS_A_UNIT * n_units:
        yield (
            f"{n_rows} rows for {n_units} units: canonical correlations rise with units alone; take "
            f"{ROWS_A_UNIT * n_units} rows, or method='unbiased_cka'"
        )

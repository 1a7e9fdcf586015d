"""Statistics of few runs: aggregates over tasks with stratified bootstrap intervals.

Scores are matrices `[run, task]`, one for each algorithm, normalised so that tasks can be averaged. The estimates are
those of the library rliable, which the tests use as the oracle. It is not used itself since its bootstrap cannot be
seeded, and since it needs a version of arch that cannot be imported with pandas 3.

Source: Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the Statistical Precipice (arXiv:2108.13264).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marlnb.analysis.stats.bootstrap import percentile_interval
from marlnb.errors import AnalysisError, ShapeError

Aggregate = Callable[[np.ndarray], np.ndarray]
MIN_RUNS_FOR_INTERVALS = 10
_MAX_NUMBERS = 4_000_000  # of resampled scores held at once


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval.

    Attributes:
        value: the estimate.
        low: 2.5% quantile of its stratified bootstrap distribution; NaN where an algorithm has one run.
        high: 97.5% quantile of that distribution; NaN where an algorithm has one run.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Band:
    """A curve with its 95% interval.

    Attributes:
        value: `[point]`.
        low: `[point]`; NaN for one run.
        high: `[point]`; NaN for one run.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def iqm(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean `[...]` of scores `[..., run, task]` (section 4.3).

    `mean(x_(k) : n/4 < k <= 3n/4)` of the sorted scores of all runs of all tasks.
    """
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(-1))


def mean(scores: np.ndarray) -> np.ndarray:
    """Mean `[...]` of scores `[..., run, task]`."""
    return np.asarray(scores.mean((-2, -1)))


def median(scores: np.ndarray) -> np.ndarray:
    """Median over tasks of the mean over runs, `[...]`, of scores `[..., run, task]`."""
    return np.asarray(np.median(scores.mean(-2), axis=-1))


def optimality_gap(scores: np.ndarray) -> np.ndarray:
    """`1 - mean(min(x, 1))`, `[...]`, of scores `[..., run, task]` (section 4.3)."""
    return np.asarray(1.0 - np.minimum(scores, 1.0).mean((-2, -1)))


AGGREGATES: dict[str, Aggregate] = {"IQM": iqm, "median": median, "mean": mean, "optimality gap": optimality_gap}


def few_runs_warning(n_runs: int) -> tuple[str, ...]:
    """A warning if intervals over this many runs of each task are too narrow; none for one run, which has no interval.

    The shares are those of 1,000 simulated means of normal scores of one task; with 10 runs it is 90%.
    """
    if n_runs == 1 or n_runs >= MIN_RUNS_FOR_INTERVALS:
        return ()
    shares = "49% of cases with 2 runs of one task, 74% with 3, 85% with 5"
    return (f"only {n_runs} runs of each task: 95% intervals are too narrow; they have the true value in {shares}",)


def aggregate(
    scores: Mapping[str, ArrayLike], *, n_bootstrap: int = 2000, seed: int = 0
) -> dict[str, dict[str, Estimate]]:
    """IQM, median, mean and optimality gap of each algorithm: `[aggregate][algorithm]`, with 95% intervals.

    Args:
        scores: by algorithm, `[run, task]`, normalised; the number of runs may differ.
        n_bootstrap: bootstrap samples: the runs of each task are drawn with replacement, tasks are kept.
    Raises:
        ShapeError: not a matrix, or empty.
        AnalysisError: a score is not finite, or n_bootstrap is below 2.
    """
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in AGGREGATES}
    for algorithm, matrix in _matrices(scores).items():
        blocks = resamples(matrix, n_bootstrap, _generator(seed, algorithm))
        samples = zip(*([function(block) for function in AGGREGATES.values()] for block in blocks))
        for (name, function), parts in zip(AGGREGATES.items(), samples):
            estimates[name][algorithm] = _estimate(function(matrix), np.concatenate(parts), len(matrix))
    return estimates


def performance_profile(
    scores: Mapping[str, ArrayLike], thresholds: ArrayLike, *, n_bootstrap: int = 2000, seed: int = 0
) -> dict[str, Band]:
    """By algorithm, `P(x > threshold)`: the share of runs that score above it, averaged over tasks (section 4.2).

    Args:
        scores: by algorithm, `[run, task]`.
        thresholds: `[point]`, normalised scores.
        n_bootstrap: as in `aggregate`.
    Raises:
        ShapeError, AnalysisError: as in `aggregate`.
    """
    levels = np.asarray(thresholds, dtype=float)

    def share_above(block: np.ndarray) -> np.ndarray:
        flat = np.sort(block.reshape(*block.shape[:-2], -1), axis=-1)
        count = np.apply_along_axis(np.searchsorted, -1, flat, levels, side="right")
        return np.asarray(1.0 - count / flat.shape[-1])

    profiles = {}
    for algorithm, matrix in _matrices(scores).items():
        blocks = resamples(matrix, n_bootstrap, _generator(seed, algorithm))
        samples = np.concatenate([share_above(block) for block in blocks])
        profiles[algorithm] = _band(share_above(matrix), samples, len(matrix))
    return profiles


def probability_of_improvement(
    scores: Mapping[str, ArrayLike], *, n_bootstrap: int = 2000, seed: int = 0
) -> dict[tuple[str, str], Estimate]:
    """By ordered pair (X, Y), `P(X > Y) + P(X = Y) / 2` for runs on the same task, averaged over tasks.

    That is the Mann-Whitney statistic of each task (section 4.3).

    Raises:
        ShapeError: as in `aggregate`, or two algorithms have different numbers of tasks.
        AnalysisError: as in `aggregate`.
    """
    matrices = _matrices(scores)
    estimates = {}
    for x, y in itertools.permutations(matrices, 2):
        left, right = matrices[x], matrices[y]
        if left.shape[1] != right.shape[1]:
            raise ShapeError(f"scores of {x!r} have {left.shape[1]} tasks, those of {y!r} have {right.shape[1]}")
        left_samples = np.concatenate(list(resamples(left, n_bootstrap, _generator(seed, x, y, "left"))))
        right_samples = np.concatenate(list(resamples(right, n_bootstrap, _generator(seed, x, y, "right"))))
        samples = np.array([_improvement(a, b) for a, b in zip(left_samples, right_samples)])
        estimates[x, y] = _estimate(_improvement(left, right), samples, min(len(left), len(right)))
    return estimates


def curve_band(runs: ArrayLike, *, n_bootstrap: int = 2000, seed: int = 0) -> Band:
    """The IQM over runs and tasks at each point of curves `[run, task, point]`, with its 95% interval.

    Raises:
        ShapeError, AnalysisError: as in `aggregate`.
    """
    curves = np.asarray(runs, dtype=float)
    if curves.ndim != 3 or 0 in curves.shape:
        raise ShapeError(f"curves must be [run, task, point]; got shape {list(curves.shape)}")
    _check_finite("curves", curves)
    _check_n_bootstrap(n_bootstrap)
    points = np.moveaxis(curves, -1, 0)  # [point, run, task]
    generator = _generator(seed, "curve")
    draws = (_draw(generator, 1, *curves.shape[:2]) for _ in range(n_bootstrap))
    samples = np.stack([iqm(np.take_along_axis(points, drawn, axis=1)) for drawn in draws])
    return _band(iqm(points), samples, len(curves))


def resamples(matrix: np.ndarray, n_bootstrap: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Blocks `[sample, run, task]` of stratified bootstrap samples: the runs of each task are drawn independently.

    (Agarwal et al. 2021, section 4.1.)
    """
    _check_n_bootstrap(n_bootstrap)
    block_size = max(1, _MAX_NUMBERS // matrix.size)
    for start in range(0, n_bootstrap, block_size):
        drawn = _draw(generator, min(block_size, n_bootstrap - start), *matrix.shape)
        yield np.take_along_axis(matrix[None], drawn, axis=1)


def _draw(generator: np.random.Generator, n_samples: int, n_runs: int, n_tasks: int) -> np.ndarray:
    return generator.integers(n_runs, size=(n_samples, n_runs, n_tasks))


def _improvement(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`P(left > right) + P(left = right) / 2`, averaged over tasks, `[...]`, of two arrays `[..., run, task]`."""
    difference = left[..., :, None, :] - right[..., None, :, :]
    return np.asarray((np.sign(difference) + 1.0).mean((-3, -2, -1)) / 2)


def _band(value: np.ndarray, samples: np.ndarray, n_runs: int) -> Band:
    """Percentiles over the first axis of `samples` `[sample, ...]`; one run does not show how much runs vary."""
    if n_runs == 1:
        return Band(np.asarray(value), *np.full((2, *np.shape(value)), np.nan))
    return Band(np.asarray(value), *percentile_interval(samples))


def _estimate(value: np.ndarray, samples: np.ndarray, n_runs: int) -> Estimate:
    band = _band(value, samples, n_runs)
    return Estimate(float(band.value), float(band.low), float(band.high))


def _generator(seed: int, *names: str) -> np.random.Generator:
    """One for each algorithm, so that adding another algorithm changes no interval."""
    return np.random.default_rng([seed, *(byte for name in names for byte in name.encode())])


def _matrices(scores: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    matrices = {}
    for algorithm, values in scores.items():
        matrix = np.asarray(values, dtype=float)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ShapeError(f"scores of {algorithm!r} must be [run, task] and not empty; got {list(matrix.shape)}")
        _check_finite(f"scores of {algorithm!r}", matrix)
        matrices[algorithm] = matrix
    return matrices


def _check_finite(what: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise AnalysisError(f"{what}: {int((~np.isfinite(values)).sum())} of {values.size} are not finite")


def _check_n_bootstrap(n_bootstrap: int) -> None:
    if n_bootstrap < 2:
        raise AnalysisError(f"n_bootstrap must be 2 or more; got {n_bootstrap}")


def normalise(values: ArrayLike, low: ArrayLike, high: ArrayLike, tasks: Sequence[str]) -> np.ndarray:
    """`(x - low) / (high - low)` of scores `[..., task]`.

    Args:
        low: `[task]`, the level that becomes 0.
        high: `[task]`, the level that becomes 1.
        tasks: `[task]`, names for error messages.
    Raises:
        AnalysisError: `high` is not above `low` for a task.
    """
    floor, ceiling = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    for task, bottom, top in zip(tasks, floor, ceiling):
        if not top > bottom:
            raise AnalysisError(f"{task}: the upper level of a scale must be above the lower; got {bottom:g}, {top:g}")
    return np.asarray((np.asarray(values, dtype=float) - floor) / (ceiling - floor))

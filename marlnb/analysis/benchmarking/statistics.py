"""Statistics of few runs: aggregates over tasks with stratified bootstrap intervals, after Agarwal et al. 2021.

Scores are matrices `[run, task]`, one for each algorithm, normalised so that tasks can be averaged. The same estimates
as those of the library rliable, which the tests take as the oracle: its own bootstrap cannot be seeded, and it needs a
version of arch that does not import beside pandas 3.

Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv:2108.13264).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from marlnb.errors import AnalysisError, ShapeError

Aggregate = Callable[[np.ndarray], np.ndarray]
CONFIDENCE = 0.95
_BLOCK_NUMBERS = 4_000_000  # of resampled scores held at once


@dataclass(frozen=True)
class Estimate:
    """A number with its interval: `low` and `high` are percentiles of its stratified bootstrap distribution."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Band:
    """A curve with its interval at each place, all `[place]`."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def iqm(scores: np.ndarray) -> np.ndarray:
    """Interquartile mean `[...]` of scores `[..., run, task]`: of all runs of all tasks, without the lowest and highest
    quarter (section 4.3)."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(-1))


def mean(scores: np.ndarray) -> np.ndarray:
    """Mean `[...]` of scores `[..., run, task]`."""
    return np.asarray(scores.mean((-2, -1)))


def median(scores: np.ndarray) -> np.ndarray:
    """Median `[...]` over tasks of the mean over runs, of scores `[..., run, task]`."""
    return np.asarray(np.median(scores.mean(-2), axis=-1))


def optimality_gap(scores: np.ndarray) -> np.ndarray:
    """How far scores `[..., run, task]` stay below 1 on average, those above counted as 1 (section 4.3): `[...]`."""
    return np.asarray(1.0 - np.minimum(scores, 1.0).mean((-2, -1)))


AGGREGATES: dict[str, Aggregate] = {"IQM": iqm, "median": median, "mean": mean, "optimality gap": optimality_gap}


def aggregate(
    scores: Mapping[str, ArrayLike], *, repetitions: int = 2000, seed: int = 0
) -> dict[str, dict[str, Estimate]]:
    """IQM, median, mean and optimality gap of each algorithm: `found[aggregate][algorithm]`, with 95% intervals.

    Args:
        scores: by algorithm, `[run, task]`, normalised; the number of runs may differ.
        repetitions: bootstrap samples: the runs of each task drawn anew, tasks kept apart.
    Raises:
        ShapeError: not a matrix, or empty.
        AnalysisError: a score is not finite, or fewer than two repetitions.
    """
    matrices = _matrices(scores)
    found: dict[str, dict[str, Estimate]] = {name: {} for name in AGGREGATES}
    for algorithm, matrix in matrices.items():
        samples: dict[str, list[np.ndarray]] = {name: [] for name in AGGREGATES}
        for drawn in resamples(matrix, repetitions, _generator(seed, algorithm)):
            for name, function in AGGREGATES.items():
                samples[name].append(function(drawn))
        for name, function in AGGREGATES.items():
            band = _interval(function(matrix), np.concatenate(samples[name]))
            found[name][algorithm] = Estimate(float(band.value), float(band.low), float(band.high))
    return found


def performance_profile(
    scores: Mapping[str, ArrayLike], thresholds: ArrayLike, *, repetitions: int = 2000, seed: int = 0
) -> dict[str, Band]:
    """By algorithm, the share of runs that score above each threshold, averaged over tasks (section 4.2).

    Args:
        scores: by algorithm, `[run, task]`.
        thresholds: `[place]`, in normalised score.
    Raises:
        As `aggregate`.
    """
    levels = np.asarray(thresholds, dtype=float)

    def above(drawn: np.ndarray) -> np.ndarray:
        flat = np.sort(drawn.reshape(*drawn.shape[:-2], -1), axis=-1)
        count = np.apply_along_axis(np.searchsorted, -1, flat, levels, side="right")
        return np.asarray(1.0 - count / flat.shape[-1])

    found = {}
    for algorithm, matrix in _matrices(scores).items():
        draws = resamples(matrix, repetitions, _generator(seed, algorithm))
        found[algorithm] = _interval(above(matrix), np.concatenate([above(drawn) for drawn in draws]))
    return found


def probability_of_improvement(
    scores: Mapping[str, ArrayLike], *, repetitions: int = 2000, seed: int = 0
) -> dict[tuple[str, str], Estimate]:
    """By ordered pair (X, Y), how likely a run of X beats a run of Y on a task drawn at random; a tie counts half.

    That is the Mann-Whitney statistic of each task, averaged over tasks (section 4.3).

    Raises:
        As `aggregate`; ShapeError: two algorithms have different numbers of tasks.
    """
    matrices = _matrices(scores)
    found = {}
    for x, y in ((x, y) for x in matrices for y in matrices if x != y):
        left, right = matrices[x], matrices[y]
        if left.shape[1] != right.shape[1]:
            raise ShapeError(f"scores of {x!r} are of {left.shape[1]} tasks, those of {y!r} of {right.shape[1]}")
        drawn_left = np.concatenate(list(resamples(left, repetitions, _generator(seed, x, y, "left"))))
        drawn_right = np.concatenate(list(resamples(right, repetitions, _generator(seed, x, y, "right"))))
        samples = np.array([_improvement(one, other) for one, other in zip(drawn_left, drawn_right)])
        band = _interval(_improvement(left, right), samples)
        found[x, y] = Estimate(float(band.value), float(band.low), float(band.high))
    return found


def curve_band(runs: ArrayLike, *, repetitions: int = 2000, seed: int = 0) -> Band:
    """The IQM over runs and tasks at each place of curves `[run, task, place]`, with its 95% interval.

    Raises:
        As `aggregate`.
    """
    curves = np.asarray(runs, dtype=float)
    if curves.ndim != 3 or 0 in curves.shape:
        raise ShapeError(f"curves are [run, task, place]; got {list(curves.shape)}")
    _check_finite("curves", curves)
    places = np.moveaxis(curves, -1, 0)  # [place, run, task]
    generator = _generator(seed, "curve")
    samples = []
    for _ in range(_check_repetitions(repetitions)):
        drawn = _draw(generator, 1, *curves.shape[:2])[0]
        samples.append(iqm(np.take_along_axis(places, drawn[None], axis=1)))
    return _interval(iqm(places), np.stack(samples))


def resamples(matrix: np.ndarray, repetitions: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Blocks `[repetition, run, task]` of stratified resamples: each task's runs drawn with replacement, on their own.

    (Agarwal et al. 2021, section 4.1.)
    """
    left = _check_repetitions(repetitions)
    block = max(1, _BLOCK_NUMBERS // matrix.size)
    while left:
        n = min(block, left)
        drawn = _draw(generator, n, *matrix.shape)
        yield np.take_along_axis(matrix[None], drawn, axis=1)
        left -= n


def _draw(generator: np.random.Generator, repetitions: int, runs: int, tasks: int) -> np.ndarray:
    return generator.integers(runs, size=(repetitions, runs, tasks))


def _improvement(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`[..., run, task]` twice -> `[...]`: P(left > right) + P(left = right) / 2, averaged over tasks."""
    difference = left[..., :, None, :] - right[..., None, :, :]
    return np.asarray((np.sign(difference) + 1.0).mean((-3, -2, -1)) / 2)


def _interval(value: np.ndarray, samples: np.ndarray) -> Band:
    """Percentiles over the first axis of `samples` `[repetition, ...]`."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(samples, [tail, 100 - tail], axis=0)
    return Band(np.asarray(value), low, high)


def _generator(seed: int, *names: str) -> np.random.Generator:
    """One for each algorithm, so that adding another one changes no interval."""
    return np.random.default_rng([seed, *(byte for name in names for byte in name.encode())])


def _matrices(scores: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    found = {}
    for algorithm, given in scores.items():
        matrix = np.asarray(given, dtype=float)
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise ShapeError(f"scores of {algorithm!r} must be [run, task], not empty; got {list(matrix.shape)}")
        _check_finite(f"scores of {algorithm!r}", matrix)
        found[algorithm] = matrix
    return found


def _check_finite(what: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise AnalysisError(f"{what}: {int((~np.isfinite(values)).sum())} of {values.size} are not finite")


def _check_repetitions(repetitions: int) -> int:
    if repetitions < 2:
        raise AnalysisError(f"an interval needs 2 repetitions or more; got {repetitions}")
    return repetitions


def normalise(values: ArrayLike, low: ArrayLike, high: ArrayLike, tasks: Sequence[str]) -> np.ndarray:
    """Scores `[..., task]` on a scale on which `low` `[task]` is 0 and `high` `[task]` is 1.

    Raises:
        AnalysisError: `high` is not above `low` for a task.
    """
    floor, ceiling = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    for task, bottom, top in zip(tasks, floor, ceiling):
        if not top > bottom:
            raise AnalysisError(f"{task}: a scale from {bottom:g} to {top:g} is none; the upper level must be above")
    return np.asarray((np.asarray(values, dtype=float) - floor) / (ceiling - floor))

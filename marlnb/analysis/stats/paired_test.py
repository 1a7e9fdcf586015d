"""Paired differences over episodes: every episode is played with and without, so each is its own control."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

Intervals = Literal["t", "bootstrap"]
CONFIDENCE, POWER, RESAMPLES = 0.95, 0.8, 9999


@dataclass(frozen=True)
class Difference:
    """A mean difference over n pairs with its 95% interval.

    Attributes:
        p_value: of the two-sided paired t test that there is none; 1 where all differences are zero.
        detectable: the smallest true difference that a test of this many pairs, as scattered as these, would have
            found in 80 of 100 cases; None for fewer than two pairs.
    """

    n: int
    mean: float
    low: float
    high: float
    p_value: float
    detectable: float | None


def paired(differences: np.ndarray, intervals: Intervals = "t", *, seed: int = 0) -> Difference:
    """The mean of `[episode]` differences; NaN marks an episode that has none, and is left out.

    Args:
        intervals: t, or bootstrap (see `bootstrapped`), which does not take means of episodes to be spread as a normal
            distribution; `p_value` and `detectable` are of the t test either way.
        seed: of the bootstrap.
    Source: the paired t test; of the detectable difference, Cohen 1988, section 2.2, with t quantiles.
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes seconds to import

    found = np.asarray(differences, dtype=np.float64)
    found = found[np.isfinite(found)]
    n = len(found)
    mean = float(found.mean()) if n else float("nan")
    if n < 2:
        return Difference(n, mean, float("-inf"), float("inf"), 1.0, None)
    error = float(found.std(ddof=1)) / sqrt(n)
    if error == 0:
        return Difference(n, mean, mean, mean, 1.0 if mean == 0 else 0.0, 0.0)
    half = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * error
    p_value = float(2 * stdtr(n - 1, -abs(mean) / error))
    low, high = (mean - half, mean + half) if intervals == "t" else bootstrapped(found, seed)
    return Difference(n, mean, low, high, p_value, half + float(stdtrit(n - 1, POWER)) * error)


def bootstrapped(found: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95% interval of the mean of `[episode]` numbers that are not all equal: episodes drawn anew, BCa.

    Source: Efron 1987, as scipy.stats.bootstrap has it, whose draws these are too (it takes seconds to import).
    """
    from scipy.special import ndtr, ndtri

    n, mean = len(found), found.mean()
    generator, means = np.random.default_rng(seed), []
    for start in range(0, RESAMPLES, _BATCH):
        drawn = generator.integers(0, n, (min(_BATCH, RESAMPLES - start), n))
        means.append(found[drawn].mean(1))
    every = np.concatenate(means)
    below = ((every < mean).mean() + (every <= mean).mean()) / 2
    without = (found.sum() - found) / (n - 1)
    left = without.mean() - without
    skew = (left**3).sum() / (6 * (left**2).sum() ** 1.5)
    bias = ndtri(below)
    z = bias + ndtri(np.array([0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]))
    low, high = np.quantile(every, ndtr(bias + z / (1 - skew * z)))
    return float(low), float(high)


_BATCH = 512  # resamples at once

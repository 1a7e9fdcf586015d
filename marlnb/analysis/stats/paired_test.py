"""Paired differences over episodes: each episode is played with and without a change, and is its own control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from marlnb.analysis.results import CONFIDENCE

Intervals = Literal["t", "bootstrap"]
POWER = 0.8  # Cohen 1988, section 2.4
N_BOOTSTRAP = 9999  # as in scipy.stats.bootstrap
EQUAL = 1e-12  # differences that vary less than this share of their size are equal up to rounding
_BATCH_SIZE = 512  # bootstrap samples at once


@dataclass(frozen=True)
class PairedDifference:
    """A mean difference over pairs.

    Attributes:
        n: pairs.
        mean: of the differences.
        low: lower end of its 95% interval.
        high: upper end of its 95% interval.
        p_value: of the two-sided paired t test; 1 where all differences are zero.
        detectable: the smallest true difference that a test of this many pairs, as scattered as these, would find in
            80 of 100 cases; None for fewer than two pairs.
    """

    n: int
    mean: float
    low: float
    high: float
    p_value: float
    detectable: float | None


def paired_test(differences: np.ndarray, intervals: Intervals = "t", *, seed: int = 0) -> PairedDifference:
    """The mean of `[episode]` differences d with its interval and t test; NaN marks an episode without a difference.

    With s the standard deviation of d and t_q the quantile of Student's distribution with n - 1 degrees of freedom:

        interval   = mean(d) -+ t_0.975 s / sqrt(n)
        p          = 2 P(T <= -|mean(d)| sqrt(n) / s)
        detectable = (t_0.975 + t_0.8) s / sqrt(n)

    Args:
        intervals: t, or bootstrap (see `bca_interval`), which does not assume normally distributed means;
            `p_value` and `detectable` belong to the t test either way.
        seed: of the bootstrap.
    Source: Student 1908 for the test; Cohen 1988, section 2.2, for the detectable difference, with t quantiles.
    """
    from scipy.special import stdtr, stdtrit  # scipy.stats takes seconds to import

    known = np.asarray(differences, dtype=np.float64)
    known = known[np.isfinite(known)]
    n = len(known)
    mean = float(known.mean()) if n else float("nan")
    if n < 2:
        return PairedDifference(n, mean, float("-inf"), float("inf"), 1.0, None)
    error = float(known.std(ddof=1)) / sqrt(n)
    if np.ptp(known) <= EQUAL * np.abs(known).max():
        return PairedDifference(n, mean, mean, mean, 1.0 if mean == 0 else 0.0, 0.0)
    half_width = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * error
    p_value = float(2 * stdtr(n - 1, -abs(mean) / error))
    low, high = (mean - half_width, mean + half_width) if intervals == "t" else bca_interval(known, seed)
    return PairedDifference(n, mean, low, high, p_value, half_width + float(stdtrit(n - 1, POWER)) * error)


def paired_tests(
    differences: Sequence[np.ndarray] | np.ndarray, intervals: Intervals = "t", *, seed: int = 0
) -> list[PairedDifference]:
    """`paired_test` of each of several samples `[sample, episode]`; thousands cost little more than one."""
    from scipy.special import stdtr, stdtrit

    samples = np.array(differences, dtype=np.float64, ndmin=2)
    n = samples.shape[1]
    if n < 2 or intervals != "t":
        return [paired_test(sample, intervals, seed=seed) for sample in differences]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, error = samples.mean(1), samples.std(1, ddof=1) / sqrt(n)
        p_value = np.where((error == 0) & (mean == 0), 1.0, 2 * stdtr(n - 1, -np.abs(mean) / error))
    half_width = float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * error
    detectable = half_width + float(stdtrit(n - 1, POWER)) * error
    columns = np.stack((mean, mean - half_width, mean + half_width, p_value, detectable), axis=1).tolist()
    complete = np.isfinite(mean)  # no difference is missing
    return [
        PairedDifference(n, *column) if is_complete else paired_test(sample, seed=seed)
        for sample, is_complete, column in zip(samples, complete, columns)
    ]


def bca_interval(values: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95% BCa bootstrap interval (bias-corrected, accelerated) of the mean of `[episode]` values, not all equal.

    With z_q the normal quantile, b = z of the share of bootstrap means below the mean, and the acceleration a from the
    leave-one-out means m_i:

        a     = sum_i (m - m_i)^3 / (6 (sum_i (m - m_i)^2)^{3/2})
        q_low = Phi(b + (b + z_0.025) / (1 - a (b + z_0.025)))      and likewise q_high with z_0.975

    Source: Efron 1987, Better Bootstrap Confidence Intervals; draws and result are those of scipy.stats.bootstrap,
        which takes seconds to import.
    """
    from scipy.special import ndtr, ndtri

    n, mean = len(values), values.mean()
    generator = np.random.default_rng(seed)
    sizes = (min(_BATCH_SIZE, N_BOOTSTRAP - start) for start in range(0, N_BOOTSTRAP, _BATCH_SIZE))
    means = np.concatenate([values[generator.integers(0, n, (size, n))].mean(1) for size in sizes])
    share_below = ((means < mean).mean() + (means <= mean).mean()) / 2
    leave_one_out = (values.sum() - values) / (n - 1)
    deviation = leave_one_out.mean() - leave_one_out
    acceleration = (deviation**3).sum() / (6 * (deviation**2).sum() ** 1.5)
    bias = ndtri(share_below)
    z = bias + ndtri(np.array([0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2]))
    low, high = np.quantile(means, ndtr(bias + z / (1 - acceleration * z)))
    return float(low), float(high)

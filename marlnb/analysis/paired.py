"""Paired differences over episodes: every episode is played with and without, so each is its own control."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

CONFIDENCE, POWER = 0.95, 0.8


@dataclass(frozen=True)
class Difference:
    """A mean difference over n pairs with its 95% t interval.

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


def paired(differences: np.ndarray) -> Difference:
    """The mean of `[episode]` differences; NaN marks an episode that has none, and is left out.

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
    return Difference(n, mean, mean - half, mean + half, p_value, half + float(stdtrit(n - 1, POWER)) * error)

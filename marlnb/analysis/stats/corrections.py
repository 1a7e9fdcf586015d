"""Corrections for many tests at once: of p-values, and of scores compared with scores under shuffled labels."""

from __future__ import annotations

import numpy as np

TOLERANCE = 1e-6
"""Scores (shares, bits, R^2) that differ by less are equal up to rounding, and a smaller spread is none."""


def holm(p: np.ndarray) -> np.ndarray:
    """p-values `[test]` corrected for the chance of any false rejection (family-wise error rate).

    With the p-values sorted, p_(1) <= ... <= p_(n):

        p_holm_(i) = min(1, max_{j <= i} (n - j + 1) p_(j))

    Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.
    """
    n = len(p)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate((n - np.arange(n)) * p[order])
    return np.asarray(np.minimum(stepped, 1)[np.argsort(order)])


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """p-values `[test]` corrected for the expected share of false rejections among all (false discovery rate).

        p_fdr_(i) = min(1, min_{j >= i} n / j p_(j))

    Source: Benjamini and Hochberg 1995, Controlling the False Discovery Rate, for tests that are independent or
        positively dependent.
    """
    from scipy.stats import false_discovery_control  # takes seconds to import

    return np.asarray(false_discovery_control(p))


def max_statistic(score: np.ndarray, shuffled: np.ndarray) -> np.ndarray:
    """p-values `[test]` of each score against the best of all tests under each shuffle.

    With T standardised scores and T*_b those under shuffle b of B:

        p_i = (1 + #{b: max_j T*_jb >= T_i}) / (1 + B)

    As strict as Holm's correction, but more tests need no more shuffles. Valid if each shuffle was the same for all
    tests. A test's scores are standardised by their median and their spread above it, because how high chance reaches
    does not depend on how low it falls: R^2 falls far (a perfect 1 among shuffles of -2 to -30 is only 0.8 standard
    deviations above their mean). Scores that are equal up to rounding count as equal: where a label depends on time
    alone, every shuffle is the label itself.

    Args:
        score: `[test]`.
        shuffled: `[test, shuffle]`.
    Source: Westfall and Young 1993, Resampling-Based Multiple Testing, section 2.4 (single step).
    """
    scores = np.concatenate([score[:, None], shuffled], axis=1)
    centred = scores - np.median(scores, axis=1, keepdims=True)
    spread = np.sqrt(2 * (np.maximum(centred, 0) ** 2).mean(axis=1, keepdims=True))
    standardised = centred / np.where(spread < TOLERANCE, 1, spread)
    largest = standardised[:, 1:].max(axis=0)
    return np.asarray((1 + (largest >= standardised[:, :1] - TOLERANCE).sum(axis=1)) / (1 + shuffled.shape[1]))

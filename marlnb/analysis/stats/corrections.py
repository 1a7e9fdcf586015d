"""Corrections for asking many questions at once: of p-values, and of the questions' scores under shuffled labels."""

from __future__ import annotations

import numpy as np


def holm(p: np.ndarray) -> np.ndarray:
    """p-values `[test]` such that those at most a have together a chance of at most a to hold a false one.

    Source: Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure.
    """
    n = len(p)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate((n - np.arange(n)) * p[order])
    found = np.empty(n)
    found[order] = np.minimum(stepped, 1)
    return found


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """p-values `[test]` such that among those at most a an expected share of at most a is false.

    Source: Benjamini and Hochberg 1995, Controlling the False Discovery Rate, for tests independent or positively
        dependent.
    """
    n = len(p)
    order = np.argsort(p, kind="stable")
    stepped = np.minimum.accumulate((n / np.arange(1, n + 1) * p[order])[::-1])[::-1]
    found = np.empty(n)
    found[order] = np.minimum(stepped, 1)
    return found


def max_statistic(score: np.ndarray, shuffled: np.ndarray) -> np.ndarray:
    """p-values `[test]` against the best of all tests: strict as Holm's, but more tests need no more shuffles.

    A test's scores, its own and the shuffled ones, are set against their median and their spread above it: how high
    chance reaches does not hang on how low it falls, and R^2 falls far (a perfect 1 among shuffles of -2 to -30 is no
    more than 0.8 standard deviations up). A test is compared with the largest of all tests under each shuffle. Valid
    when each shuffle was the same for all tests.

    Args:
        score: `[test]`; shuffled: `[test, shuffle]`.
    Source: Westfall and Young 1993, Resampling-Based Multiple Testing, section 2.4 (single step).
    """
    every = np.concatenate([score[:, None], shuffled], axis=1)
    centred = every - np.median(every, axis=1, keepdims=True)
    spread = np.sqrt(2 * (np.maximum(centred, 0) ** 2).mean(axis=1, keepdims=True))
    standardised = centred / np.where(spread == 0, 1, spread)
    largest = standardised[:, 1:].max(axis=0)
    return np.asarray((1 + (largest >= standardised[:, :1]).sum(axis=1)) / (1 + shuffled.shape[1]))

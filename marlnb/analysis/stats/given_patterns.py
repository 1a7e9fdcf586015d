"""Patterns: in which directions activations change with given quantities, and directions without them."""

from __future__ import annotations

import numpy as np

DETERMINED = 0.99
"""Share of a quantity's variance from which on others are said to determine it."""
ROUNDING = 1e-9
"""A residual whose sum of squares is at most this share of the quantity's is a rounding error."""
MIN_REST = 0.01
"""A direction of which less than this share of its length is left has nothing left."""


def patterns(activations: np.ndarray, given: np.ndarray, concept: np.ndarray | None = None) -> np.ndarray:
    """An orthonormal basis `[pattern, unit]` of the directions in which activations change with what is given.

    With activations h, the given z and the concept k (columns of numbers, classes one-hot), by least squares,

        h = m + A k + B z + e;        the basis spans the columns of B

    Along a direction v with `v' B = 0`, activations do not change with z where k stays the same; without a concept,
    `v' B = 0` means `Cov(v' h, z) = 0`, so that no linear function of v' h predicts z better than a constant does.

    Args:
        activations: `[row, unit]`.
        given: `[row, column]`.
        concept: `[row, column]`, held fixed; what of z it determines (to 99% of the variance) has no pattern.
    Source: Belrose et al. 2023, LEACE, theorem 3.1 (arXiv:2306.03819): zero covariance is what guards z against linear
        predictors; Frisch and Waugh 1933 for the regression with k held fixed. LEACE's projection depends on the
        covariance of h; this one is orthogonal, as that of `Erase`.
    """
    rest = _standardised(given)
    rest = rest if concept is None else residual(rest, concept)
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    left = left[:, sizes**2 > (1 - DETERMINED) * len(rest)]
    slopes = left.T @ (activations - activations.mean(0))
    _, sizes, basis = np.linalg.svd(slopes, full_matrices=False)
    return np.asarray(basis[sizes > 1e-6 * sizes.max(initial=1e-12)])


def without(directions: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors `[direction, unit]` v - W'W v, with W the basis, and which share of its length is left of each.

    Args:
        directions: `[direction, unit]`, of length 1.
        basis: `[pattern, unit]`, orthonormal.
    """
    rest = directions - directions @ basis.T @ basis
    length = np.linalg.norm(rest, axis=1)
    return rest / np.maximum(length, 1e-12)[:, None], np.where(length < MIN_REST, 0.0, length)


def half_agreement(
    directions: np.ndarray, activations: np.ndarray, given: np.ndarray, concept: np.ndarray | None
) -> float:
    """How far two halves of the rows agree on what is left of the directions: the smallest cosine; 1 for few rows."""
    half = len(activations) // 2
    parts = slice(0, half), slice(half, None)
    rests = [
        without(directions, patterns(activations[p], given[p], None if concept is None else concept[p])) for p in parts
    ]
    (first, left), (second, other_left) = rests
    cosines = np.abs((first * second).sum(1))[(left > 0) & (other_left > 0)]
    return float(cosines.min(initial=1.0))


def residual(values: np.ndarray, predictors: np.ndarray) -> np.ndarray:
    """What a linear regression on the predictors `[row, column]` leaves of the values `[row, column]`.

    A column that the predictors determine is 0, rather than rounding errors.
    """
    x = _standardised(predictors)
    left, sizes, _ = np.linalg.svd(x, full_matrices=False)
    left = left[:, sizes > 1e-6 * sizes.max(initial=1e-12)]
    centred = values - values.mean(0)
    rest = centred - left @ (left.T @ centred)
    is_determined = (rest**2).sum(0) <= ROUNDING * (centred**2).sum(0)
    return np.where(is_determined, 0.0, rest)


def explained_share(values: np.ndarray, predictors: np.ndarray, held: np.ndarray | None = None) -> float:
    """Share of the variance of values `[row, column]` that the predictors explain, with `held` held fixed (R^2)."""
    rest = values - values.mean(0) if held is None else residual(values, held)
    total = float((rest**2).sum())
    if total == 0:
        return 0.0
    every = predictors if held is None else np.concatenate([predictors, held], axis=1)
    return 1 - float((residual(values, every) ** 2).sum()) / total


def _standardised(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(0)
    deviation = centred.std(0)
    return np.asarray(centred / np.where(deviation > 1e-12, deviation, 1.0))

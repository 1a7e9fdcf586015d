"""Random directions as controls for a direction of interest: of equal length, or also of equal variance."""

from __future__ import annotations

import numpy as np

MAX_OVERLAP = 1e-6  # cosine with the span of the target that counts as orthogonal
MAX_VARIANCE_MISMATCH = 0.1  # relative difference of variances that counts as matched
MIN_FREE_DIMENSIONS = 2  # in one dimension all random directions are the same, up to their sign


def free_dimensions(target: np.ndarray, excluded: np.ndarray | None = None) -> int:
    """The number of dimensions in which random directions are drawn: those orthogonal to `target` and `excluded`."""
    return target.shape[1] - _span(target, excluded).shape[1]


def random_directions(
    target: np.ndarray, n: int, rng: np.random.Generator, excluded: np.ndarray | None = None
) -> np.ndarray:
    """Sets of random unit vectors `[set, direction, unit]`, uniform in the orthogonal complement of `target`
    `[direction, unit]` and of the `excluded` ones `[direction, unit]`: v = g / |g|, with g Gaussian noise there.

    Source: Muller 1959, A Note on a Method for Generating Points Uniformly on N-dimensional Spheres.
    """
    basis = _span(target, excluded)
    drawn = rng.standard_normal((n, *target.shape))
    drawn -= drawn @ basis @ basis.T
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def matched_directions(
    target: np.ndarray,
    covariance: np.ndarray,
    n: int,
    rng: np.random.Generator,
    excluded: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Sets of random unit vectors `[set, direction, unit]`, orthogonal to `target` `[direction, unit]` and to the
    `excluded` ones.

    The k-th of a set has the variance of the k-th of `target`, as closely as the space allows: a direction along which
    nothing varies would be no control, since erasing it changes nothing. With g Gaussian noise and C the covariance in
    the orthogonal complement:

        v = C^a g / |C^a g|,    the power a chosen by bisection so that v' C v = target' C target

    Returns:
        the sets, and the largest relative difference of variances.
    """
    n_units = target.shape[1]
    basis = _span(target, excluded)
    values, vectors = _variances_in_complement(covariance, basis)
    values = np.clip(values, 1e-12, None)
    target_variance = [float(direction @ covariance @ direction) for direction in target]
    sets, mismatch = np.empty((n, len(target), n_units)), 0.0
    for index in np.ndindex(n, len(target)):
        wanted = target_variance[index[1]]
        coordinates, variance = _with_variance(rng.standard_normal(len(values)), values, wanted)
        sets[index] = vectors @ coordinates
        mismatch = max(mismatch, abs(variance - wanted) / max(wanted, 1e-12))
    return sets, mismatch


def _variances_in_complement(covariance: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covariance's variances `[k]` and directions `[unit, k]` in the complement of a basis `[unit, dimension]`."""
    rest = np.eye(len(basis)) - basis @ basis.T
    values, vectors = np.linalg.eigh(rest @ covariance @ rest)
    complement = np.argsort(values)[basis.shape[1] :]  # the span of the basis has variance 0 in this matrix
    values, vectors = values[complement], vectors[:, complement]
    if np.abs(basis.T @ vectors).max(initial=0.0) > MAX_OVERLAP:  # and so have units that never vary
        within = np.linalg.svd(basis)[0][:, basis.shape[1] :]
        values, vectors = np.linalg.eigh(within.T @ covariance @ within)
        vectors = within @ vectors
    return values, vectors


def _span(target: np.ndarray, excluded: np.ndarray | None) -> np.ndarray:
    """An orthonormal basis `[unit, k]` of the directions."""
    directions = target if excluded is None else np.concatenate([target, excluded])
    left, sizes, _ = np.linalg.svd(directions.T, full_matrices=False)
    return np.asarray(left[:, sizes > 1e-9 * sizes[0]])


def _with_variance(noise: np.ndarray, values: np.ndarray, wanted: float) -> tuple[np.ndarray, float]:
    """Unit vector, in coordinates of the eigenvectors, of noise times a power of the eigenvalues; and its variance."""
    logs = np.log(values)

    def at(power: float) -> tuple[np.ndarray, float]:
        exponents = power * logs
        scaled = noise * np.exp(exponents - exponents.max())
        scaled = scaled / np.linalg.norm(scaled)
        return scaled, float(scaled**2 @ values)

    low, high = -40.0, 40.0  # the variance rises with the power
    for _ in range(60):
        middle = (low + high) / 2
        if at(middle)[1] < wanted:
            low = middle
        else:
            high = middle
    return at((low + high) / 2)

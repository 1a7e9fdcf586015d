"""Random directions to compare a found one with: as long; or as long, and with as much variance along them."""

from __future__ import annotations

import numpy as np

CLOSE = 0.1  # relative difference of variances that counts as matched


def random_directions(target: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sets of random unit vectors `[set, direction, unit]`, even in all that is orthogonal to `target`
    `[direction, unit]`."""
    basis = _span(target)
    drawn = rng.standard_normal((n, *target.shape))
    drawn -= drawn @ basis @ basis.T
    return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))


def matched_directions(
    target: np.ndarray, covariance: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Sets of random unit vectors `[set, direction, unit]`, orthogonal to all of `target` `[direction, unit]`.

    The k-th of a set has as much variance along it as the k-th of `target`, as near as the space leaves: a direction
    along which nothing varies would be no control, since erasing it changes nothing. A draw is Gaussian noise, shaped
    by a power of the covariance that makes its variance right.

    Returns:
        the sets, and the largest relative difference of variances.
    """
    n_units = target.shape[1]
    basis = _span(target)
    rest = np.eye(n_units) - basis @ basis.T
    values, vectors = np.linalg.eigh(rest @ covariance @ rest)
    keep = np.argsort(values)[basis.shape[1] :]  # the target's own span has variance 0 in this matrix
    values, vectors = np.clip(values[keep], 1e-12, None), vectors[:, keep]
    wanted = [float(each @ covariance @ each) for each in target]
    sets, worst = np.empty((n, len(target), n_units)), 0.0
    for place in np.ndindex(n, len(target)):
        noise = rng.standard_normal(len(values))
        along, found = _shaped(noise, values, wanted[place[1]])
        sets[place] = vectors @ along
        worst = max(worst, abs(found - wanted[place[1]]) / max(wanted[place[1]], 1e-12))
    return sets, worst


def _span(target: np.ndarray) -> np.ndarray:
    """An orthonormal basis `[unit, k]` of the directions."""
    left, sizes, _ = np.linalg.svd(target.T, full_matrices=False)
    return np.asarray(left[:, sizes > 1e-9 * sizes[0]])


def _shaped(noise: np.ndarray, values: np.ndarray, wanted: float) -> tuple[np.ndarray, float]:
    """Noise in eigen-coordinates times a power of the eigenvalues, of length 1, and its variance, by bisection."""
    logs = np.log(values)

    def at(power: float) -> tuple[np.ndarray, float]:
        exponents = power * logs
        along = noise * np.exp(exponents - exponents.max())
        along = along / np.linalg.norm(along)
        return along, float(along**2 @ values)

    low, high = -40.0, 40.0  # the variance rises with the power
    for _ in range(60):
        middle = (low + high) / 2
        if at(middle)[1] < wanted:
            low = middle
        else:
            high = middle
    return at((low + high) / 2)

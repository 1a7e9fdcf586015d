"""Ridge regression of many labels on the same units at once: the factorisation is shared, only the labels change.

The strength is chosen for each label by the error of leaving out one row, which is exact here and costs no refitting
(scikit-learn's RidgeCV does the same for one label; the tests hold the two equal).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.preprocessing import StandardScaler

RIDGE_STRENGTHS = tuple(10.0**k for k in range(-2, 5))


@dataclass(frozen=True)
class RidgeFit:
    """Coefficients in the units of `x` and of each label.

    Attributes:
        weights: `[label, feature]`; intercept: `[label]`; strength: `[label]`, of the penalty on standardised features.
    """

    weights: np.ndarray
    intercept: np.ndarray
    strength: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """`[row, label]` for `[row, feature]`."""
        return x @ self.weights.T + self.intercept


def fit_ridge(x: np.ndarray, y: np.ndarray) -> RidgeFit:
    """Ridge on standardised features with a free intercept, its strength among RIDGE_STRENGTHS.

    With the eigenvectors V and eigenvalues s of X'X, leverage is h = 1/n + sum_j (XV)_j^2 / (s_j + strength), and the
    error of the row that is left out is its residual / (1 - h).

    Args:
        x: `[row, feature]`; y: `[row, label]`.
    Source: Golub, Heath and Wahba 1979, Generalized Cross-Validation, section 2 (leave-one-out, "PRESS").
    """
    scaler = StandardScaler()
    z = scaler.fit_transform(x.astype(np.float64))
    target = y.astype(np.float64)
    centre = target.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z)
    rotated = z @ vectors
    moments = rotated.T @ (target - centre)
    errors = [_left_out_error(rotated, moments, target - centre, values, a) for a in RIDGE_STRENGTHS]
    best = np.argmin(errors, axis=0)
    return in_own_units(values, vectors, moments, np.array(RIDGE_STRENGTHS)[best], scaler.mean_, scaler.scale_, centre)


def _left_out_error(
    rotated: np.ndarray, moments: np.ndarray, centred: np.ndarray, values: np.ndarray, strength: float
) -> np.ndarray:
    """Mean squared error of rows left out, `[label]`."""
    shrink = values + strength
    leverage = 1 / len(rotated) + (rotated**2 / shrink).sum(axis=1)
    residual = centred - rotated @ (moments / shrink[:, None])
    return np.asarray(((residual / np.maximum(1 - leverage, 1e-12)[:, None]) ** 2).mean(axis=0))


def in_own_units(
    values: np.ndarray,
    vectors: np.ndarray,
    moments: np.ndarray,
    strength: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    centre: np.ndarray,
) -> RidgeFit:
    """The fit for each label's strength, from standardised features back to their own units.

    Args:
        values, vectors: of X'X, standardised; moments: V'X'y, `[feature, label]`; mean, scale: of the features;
            centre: mean of the labels.
    """
    weights = (vectors @ (moments / (values[:, None] + strength))).T / scale
    return RidgeFit(weights, centre - weights @ mean, strength)

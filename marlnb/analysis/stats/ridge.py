"""Ridge regression of many labels on the same units: the eigendecomposition is shared, only the labels change.

The penalty is chosen for each label by its leave-one-out error, which is exact here and needs no refitting.
scikit-learn's RidgeCV does the same for one label; the tests compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.preprocessing import StandardScaler

RIDGE_STRENGTHS = tuple(10.0**k for k in range(-2, 5))


@dataclass(frozen=True)
class RidgeFit:
    """Coefficients in the features' and labels' own units.

    Attributes:
        weights: `[label, feature]`.
        intercept: `[label]`.
        strength: `[label]`, the penalty on standardised features.
    """

    weights: np.ndarray
    intercept: np.ndarray
    strength: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """`[row, label]` for `[row, feature]`."""
        return x @ self.weights.T + self.intercept


def fit_ridge(x: np.ndarray, y: np.ndarray) -> RidgeFit:
    """Ridge regression on standardised features Z with a free intercept, its strength among RIDGE_STRENGTHS.

        w = argmin_w |y - mean(y) - Z w|^2 + strength |w|^2 = V (s + strength)^-1 V' Z' (y - mean(y))

    with the eigenvectors V and eigenvalues s of Z'Z. Row i has the leverage h_i and the leave-one-out error e_i:

        h_i = 1/n + sum_j (Z V)_ij^2 / (s_j + strength),    e_i = (y_i - prediction_i) / (1 - h_i)

    and each label takes the strength with the smallest mean of e_i^2.

    Args:
        x: `[row, feature]`.
        y: `[row, label]`.
    Source: Hoerl and Kennard 1970, Ridge Regression; Golub, Heath and Wahba 1979, Generalized Cross-Validation,
        section 2, for the leave-one-out error ("PRESS").
    """
    scaler = StandardScaler()
    z = scaler.fit_transform(x.astype(np.float64))
    target = y.astype(np.float64)
    centre = target.mean(axis=0)
    centred = target - centre
    values, vectors = np.linalg.eigh(z.T @ z)
    rotated = z @ vectors
    moments = rotated.T @ centred
    errors = []
    for strength in RIDGE_STRENGTHS:
        shrink = values + strength
        leverage = 1 / len(rotated) + (rotated**2 / shrink).sum(axis=1)
        residual = centred - rotated @ (moments / shrink[:, None])
        errors.append(((residual / np.maximum(1 - leverage, 1e-12)[:, None]) ** 2).mean(axis=0))
    strength_by_label = np.array(RIDGE_STRENGTHS)[np.argmin(errors, axis=0)]
    return unstandardised_fit(values, vectors, moments, strength_by_label, scaler.mean_, scaler.scale_, centre)


def unstandardised_fit(
    values: np.ndarray,
    vectors: np.ndarray,
    moments: np.ndarray,
    strength: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    centre: np.ndarray,
) -> RidgeFit:
    """The fit with each label's strength, in the features' own units: w = V (s + strength)^-1 V'Z'y / scale.

    Args:
        values: `[component]`, eigenvalues s of Z'Z.
        vectors: `[feature, component]`, eigenvectors V.
        moments: `[component, label]`, V'Z'y.
        strength: `[label]`.
        mean: `[feature]`.
        scale: `[feature]`, standard deviations.
        centre: `[label]`, mean of the labels.
    """
    weights = (vectors @ (moments / (values[:, None] + strength))).T / scale
    return RidgeFit(weights, centre - weights @ mean, strength)

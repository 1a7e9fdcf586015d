"""Exact ridge regression from sums over rows: the file is read once, and no row is kept."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from marlnb.analysis.stats.linear_models import MAX_CONSTANT_VARIANCE
from marlnb.analysis.stats.ridge import RIDGE_STRENGTHS, RidgeFit, unstandardised_fit
from marlnb.analysis.stats.streaming_problems import FitSplit


class RidgeSums:
    """Counts, sums and products of features x and targets y, by part of the rows.

    All are of x - shift and y - y_shift, since sums of squares of values far from zero lose their digits.

    Attributes:
        n: `[part]` rows.
        x: `[part, feature]`.
        y: `[part, target]`.
        xx: `[part, feature, feature]`.
        xy: `[part, feature, target]`.
        yy: `[part, target]`.
    """

    def __init__(self, n_parts: int, n_features: int, shift: np.ndarray, y_shift: np.ndarray) -> None:
        self.shift, self.y_shift, n_targets = shift, y_shift, len(y_shift)
        self.n = np.zeros(n_parts)
        self.x, self.y = np.zeros((n_parts, n_features)), np.zeros((n_parts, n_targets))
        self.xx = np.zeros((n_parts, n_features, n_features))
        self.xy, self.yy = np.zeros((n_parts, n_features, n_targets)), np.zeros((n_parts, n_targets))

    def add(self, part: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        """Adds rows `[row]`, `[row, feature]` and `[row, target]`."""
        x, y = x.astype(np.float64) - self.shift, y.astype(np.float64) - self.y_shift
        for k in np.unique(part):
            x_k, y_k = x[part == k], y[part == k]
            self.n[k] += len(x_k)
            self.x[k] += x_k.sum(axis=0)
            self.y[k] += y_k.sum(axis=0)
            self.xx[k] += x_k.T @ x_k
            self.xy[k] += x_k.T @ y_k
            self.yy[k] += (y_k**2).sum(axis=0)

    def moments(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean `[feature]` and covariance `[feature, feature]` of the rows of some parts."""
        n, mean = self.n[parts].sum(), self.x[parts].sum(axis=0) / self.n[parts].sum()
        return mean + self.shift, self.xx[parts].sum(axis=0) / n - np.outer(mean, mean)


def ridge_from_sums(sums: RidgeSums, splits: Sequence[FitSplit]) -> tuple[np.ndarray, list[RidgeFit]]:
    """R^2 `[split]` on each split's test parts, and its fit.

    The strength minimises the generalised cross-validation error, which needs only sums; the leave-one-out error of
    `fit_ridge` would need the rows, and can choose another strength. With H the hat matrix:

        GCV(strength) = |y - H y|^2 / (1 - trace(H) / n)^2,    trace(H) = 1 + sum_j s_j / (s_j + strength)

    Source: Golub, Heath and Wahba 1979, Generalized Cross-Validation, equation 1.4.
    """
    factors_of = functools.cache(lambda train: _Factors(sums, np.frombuffer(train, bool)))  # splits share training sets
    fits = [factors_of(split.train.tobytes()).fit(sums, split) for split in splits]
    return np.array([_r2(sums, split, fit) for split, fit in zip(splits, fits)]), fits


class _Factors:
    """The eigendecomposition of one training set's standardised features."""

    def __init__(self, sums: RidgeSums, train: np.ndarray) -> None:
        self.n = sums.n[train].sum()
        self.mean = sums.x[train].sum(axis=0) / self.n
        covariance = sums.xx[train].sum(axis=0) / self.n - np.outer(self.mean, self.mean)
        variance = np.diag(covariance).clip(0)
        self.scale = np.where(variance <= 1e-14 * (1 + sums.shift**2), 1.0, np.sqrt(variance))
        values, self.vectors = np.linalg.eigh(self.n * covariance / np.outer(self.scale, self.scale))
        self.values = values.clip(0)

    def fit(self, sums: RidgeSums, split: FitSplit) -> RidgeFit:
        column = split.target
        centre = sums.y[split.train, column].sum() / self.n
        products = sums.xy[split.train, :, column].sum(axis=0) - self.n * self.mean * centre
        moments = self.vectors.T @ (products / self.scale)
        total = sums.yy[split.train, column].sum() - self.n * centre**2
        strengths = np.array(RIDGE_STRENGTHS)[:, None]
        shrunk = moments / (self.values + strengths)
        residual = total - 2 * (shrunk * moments).sum(axis=1) + (shrunk**2 * self.values).sum(axis=1)
        freedom = 1 + (self.values / (self.values + strengths)).sum(axis=1)
        best = np.argmin(residual / np.maximum(1 - freedom / self.n, 1e-12) ** 2)
        return unstandardised_fit(
            self.values, self.vectors, moments[:, None], np.array([RIDGE_STRENGTHS[best]]),
            self.mean + sums.shift, self.scale, np.array([centre + sums.y_shift[column]]),
        )  # fmt: skip


def _r2(sums: RidgeSums, split: FitSplit, fit: RidgeFit) -> float:
    """R^2 = 1 - sum (y - prediction)^2 / sum (y - mean(y))^2 over the test rows, expanded into sums."""
    test, column, w = split.test, split.target, fit.weights[0]
    n, x, y = sums.n[test].sum(), sums.x[test].sum(axis=0), sums.y[test, column].sum()
    xx, xy, yy = sums.xx[test].sum(axis=0), sums.xy[test, :, column].sum(axis=0), sums.yy[test, column].sum()
    b = float(fit.intercept[0] + w @ sums.shift - sums.y_shift[column])  # of shifted features and target
    residual = yy - 2 * (w @ xy + b * y) + w @ xx @ w + 2 * b * (w @ x) + n * b**2
    total = yy - y**2 / n if n else 0.0
    variance = sums.yy[:, column].sum() / sums.n.sum() - (sums.y[:, column].sum() / sums.n.sum()) ** 2
    return 0.0 if total <= MAX_CONSTANT_VARIANCE * n * max(variance, 0.0) else float(1 - residual / total)

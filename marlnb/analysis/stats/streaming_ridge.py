"""Exact ridge regression from sums over rows: the file is read once, and no row is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marlnb.analysis.stats.linear_models import STANDS_STILL
from marlnb.analysis.stats.ridge import RIDGE_STRENGTHS, RidgeFit, in_own_units
from marlnb.analysis.stats.streaming_problems import Problem


class Sums:
    """Counts, sums and products of features and targets, by part of the rows.

    Attributes:
        n: `[part]`; x, y: `[part, feature]`, `[part, target]`; xx, xy, yy: `[part, feature, feature]`,
            `[part, feature, target]`, `[part, target]`; all of values less `shift` and `y_shift`, against cancellation.
    """

    def __init__(self, n_parts: int, n_features: int, shift: np.ndarray, y_shift: np.ndarray) -> None:
        self.shift, self.y_shift, targets = shift, y_shift, len(y_shift)
        self.n = np.zeros(n_parts)
        self.x, self.y = np.zeros((n_parts, n_features)), np.zeros((n_parts, targets))
        self.xx = np.zeros((n_parts, n_features, n_features))
        self.xy, self.yy = np.zeros((n_parts, n_features, targets)), np.zeros((n_parts, targets))

    def add(self, part: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        """Rows `[row]`, `[row, feature]` and `[row, target]`."""
        x, y = x.astype(np.float64) - self.shift, y.astype(np.float64) - self.y_shift
        for k in np.unique(part):
            here, there = x[part == k], y[part == k]
            self.n[k] += len(here)
            self.x[k] += here.sum(axis=0)
            self.y[k] += there.sum(axis=0)
            self.xx[k] += here.T @ here
            self.xy[k] += here.T @ there
            self.yy[k] += (there**2).sum(axis=0)

    def moments(self, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean `[feature]` and covariance `[feature, feature]` of the rows of some parts."""
        n, mean = self.n[parts].sum(), self.x[parts].sum(axis=0) / self.n[parts].sum()
        return mean + self.shift, self.xx[parts].sum(axis=0) / n - np.outer(mean, mean)


def ridge_from_sums(sums: Sums, problems: Sequence[Problem]) -> tuple[np.ndarray, list[RidgeFit]]:
    """R^2 `[problem]` on each problem's test parts, and its fit.

    The strength is chosen by generalised cross-validation, which needs only sums; leaving out single rows, as in
    memory, would need the rows. With many more rows than features both choose alike.

    Source: Golub, Heath and Wahba 1979, equation 1.4.
    """
    shared: dict[bytes, _Factors] = {}
    scores, fits = np.zeros(len(problems)), []
    for place, problem in enumerate(problems):
        key = problem.train.tobytes()
        if key not in shared:
            shared[key] = _Factors(sums, problem.train)
        fit = shared[key].fit(sums, problem)
        fits.append(fit)
        scores[place] = _r2(sums, problem, fit)
    return scores, fits


class _Factors:
    """The eigenvectors of one training set's standardised features."""

    def __init__(self, sums: Sums, train: np.ndarray) -> None:
        self.n = sums.n[train].sum()
        self.mean = sums.x[train].sum(axis=0) / self.n
        covariance = sums.xx[train].sum(axis=0) / self.n - np.outer(self.mean, self.mean)
        variance = np.diag(covariance).clip(0)
        self.scale = np.where(variance <= 1e-14 * (1 + sums.shift**2), 1.0, np.sqrt(variance))
        values, self.vectors = np.linalg.eigh(self.n * covariance / np.outer(self.scale, self.scale))
        self.values = values.clip(0)

    def fit(self, sums: Sums, problem: Problem) -> RidgeFit:
        column = problem.target
        centre = sums.y[problem.train, column].sum() / self.n
        products = sums.xy[problem.train, :, column].sum(axis=0) - self.n * self.mean * centre
        moments = self.vectors.T @ (products / self.scale)
        total = sums.yy[problem.train, column].sum() - self.n * centre**2
        strengths = np.array(RIDGE_STRENGTHS)[:, None]
        shrunk = moments / (self.values + strengths)
        missed = total - 2 * (shrunk * moments).sum(axis=1) + (shrunk**2 * self.values).sum(axis=1)
        freedom = 1 + (self.values / (self.values + strengths)).sum(axis=1)
        best = np.argmin(missed / np.maximum(1 - freedom / self.n, 1e-12) ** 2)
        return in_own_units(
            self.values, self.vectors, moments[:, None], np.array([RIDGE_STRENGTHS[best]]),
            self.mean + sums.shift, self.scale, np.array([centre + sums.y_shift[column]]),
        )  # fmt: skip


def _r2(sums: Sums, problem: Problem, fit: RidgeFit) -> float:
    """From sums: what the fit misses of the test rows, over their spread."""
    test, column, w = problem.test, problem.target, fit.weights[0]
    n, x, y = sums.n[test].sum(), sums.x[test].sum(axis=0), sums.y[test, column].sum()
    xx, xy, yy = sums.xx[test].sum(axis=0), sums.xy[test, :, column].sum(axis=0), sums.yy[test, column].sum()
    b = float(fit.intercept[0] + w @ sums.shift - sums.y_shift[column])  # of shifted features and target
    missed = yy - 2 * (w @ xy + b * y) + w @ xx @ w + 2 * b * (w @ x) + n * b**2
    total = yy - y**2 / n if n else 0.0
    everywhere = sums.yy[:, column].sum() / sums.n.sum() - (sums.y[:, column].sum() / sums.n.sum()) ** 2
    return 0.0 if total <= STANDS_STILL * n * max(everywhere, 0.0) else float(1 - missed / total)

"""Logistic regression over batches, for many labels and folds at once, by averaged stochastic gradients.

Gradients are preconditioned by the inverse of the features' correlations, which bounds the curvature (Böhning 1992,
Multinomial logistic regression algorithm), so that the step needs no tuning and some hundred steps suffice; the
weights of the second half of the steps are averaged (Polyak and Juditsky 1992). Penalty, class weights and standardised
features are those of the fits in memory, and the tests hold the scores of the two together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marlnb.analysis.stats.linear_models import INVERSE_STRENGTH
from marlnb.analysis.stats.streaming_problems import Problem

STEP_ROWS = 4096
STEPS = 300


class LogisticStream:
    """Fits of several problems, step by step.

    Args:
        mean, covariance: of the features over all rows; rows: `[problem, class]`, how many of each class it is fitted
            to.
    """

    def __init__(
        self, problems: Sequence[Problem], mean: np.ndarray, covariance: np.ndarray, rows: np.ndarray, steps: int
    ) -> None:
        self.target = np.array([problem.target for problem in problems])
        self.train = np.stack([problem.train for problem in problems], axis=1)
        self.test = np.stack([problem.test for problem in problems], axis=1)
        variance = np.diag(covariance).clip(0)
        self.mean, self.scale = mean, np.where(variance <= 1e-14 * (1 + mean**2), 1.0, np.sqrt(variance))
        present, n = rows > 0, rows.sum(axis=1)
        n_classes = present.sum(axis=1)
        self.class_weight = np.where(present, n[:, None] / np.maximum(n_classes[:, None] * rows, 1), 0.0)
        binary = np.where(n_classes == 2, 2.0, 1.0)  # scikit-learn's two classes share one weight vector
        self.penalty = binary / INVERSE_STRENGTH / n
        d = len(mean)
        correlation = covariance / np.outer(self.scale, self.scale)
        inverse = np.linalg.inv(correlation + (1e-6 + self.penalty.min()) * np.eye(d))
        self.step = np.zeros((d + 1, d + 1))
        self.step[:d, :d], self.step[d, d] = inverse, 1.0
        self.absent = np.where(present, 0.0, -np.inf)
        self.weights = np.zeros((d + 1, len(problems), rows.shape[1]))
        self.averages = [np.zeros_like(self.weights), np.zeros_like(self.weights)]
        self.counts, self.done, self.steps = [0, 0], 0, steps

    def learn(self, part: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        """One step on rows `[row]`, `[row, feature]`, class indices `[row, target]`."""
        z, truth = self._features(x), y[:, self.target]
        logits = np.tensordot(z, self.weights, axes=1) + self.absent
        logits -= logits.max(axis=2, keepdims=True)
        residual = np.exp(logits)
        residual /= residual.sum(axis=2, keepdims=True)
        np.put_along_axis(residual, truth[..., None], np.take_along_axis(residual, truth[..., None], 2) - 1, 2)
        weight = self.class_weight[np.arange(len(self.target)), truth] * self.train[part]
        residual *= weight[..., None]
        fitted = np.maximum(self.train[part].sum(axis=0), 1)
        gradient = np.tensordot(z, residual, axes=(0, 0)) / fitted[:, None]
        gradient[:-1] += self.penalty[:, None] * self.weights[:-1]
        self.weights -= np.tensordot(self.step, gradient, axes=1)
        self.done += 1
        for k, begin in enumerate((self.steps // 2, 3 * self.steps // 4)):
            if self.done > begin:
                self.counts[k] += 1
                self.averages[k] += (self.weights - self.averages[k]) / self.counts[k]

    def hits(self, part: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """`[average, problem, class, 2]`: test rows of each class, and those told right, by either average."""
        z, truth = self._features(x), y[:, self.target]
        tested = self.test[part]
        n_classes = self.weights.shape[2]
        found = np.zeros((2, len(self.target), n_classes, 2))
        for k, average in enumerate(self.averages):
            right = (np.tensordot(z, average, axes=1) + self.absent).argmax(axis=2) == truth
            for c in range(n_classes):
                here = tested & (truth == c)
                found[k, :, c, 0], found[k, :, c, 1] = here.sum(axis=0), (here & right).sum(axis=0)
        return found

    def own_units(self, problem: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights `[class, feature]` and intercepts `[class]` of the features themselves."""
        fitted = self.averages[0][:, problem].T
        weights = fitted[:, :-1] / self.scale
        return weights, fitted[:, -1] - weights @ self.mean

    def _features(self, x: np.ndarray) -> np.ndarray:
        z = (x.astype(np.float64) - self.mean) / self.scale
        return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def balanced_from_hits(hits: np.ndarray) -> np.ndarray:
    """Balanced accuracy `[...]` of `[..., class, 2]`, over the classes that were tested."""
    tested = hits[..., 0] > 0
    recall = np.where(tested, hits[..., 1] / np.maximum(hits[..., 0], 1), 0.0)
    return np.asarray(recall.sum(axis=-1) / np.maximum(tested.sum(axis=-1), 1))

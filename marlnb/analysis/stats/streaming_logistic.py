"""Logistic regression over batches, for many labels and folds at once, by averaged stochastic gradients.

With z the standardised features of a row and c its class, each fit minimises what the fits in memory minimise (see
`logistic`), a class-weighted cross-entropy with an L2 penalty:

    L(W) = mean_row weight[c] (-log softmax(W z)_c) + penalty / 2 |W|^2

The gradient is preconditioned by the inverse of the features' correlation matrix, which bounds the curvature (Böhning
1992, Multinomial logistic regression algorithm), so the step size needs no tuning and a few hundred steps suffice. The
weights of the second half of the steps are averaged (Polyak and Juditsky 1992, Acceleration of stochastic approximation
by averaging). The tests compare the scores with those of the fits in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marlnb.analysis.stats.logistic import INVERSE_STRENGTH
from marlnb.analysis.stats.streaming_problems import FitSplit

STEP_ROWS = 4096
STEPS = 300


class StreamingLogistic:
    """Several fits, trained step by step.

    Args:
        splits: the fits.
        mean: `[feature]`, over all rows.
        covariance: `[feature, feature]`, over all rows.
        rows: `[split, class]`, how many training rows of each class.
        steps: how many steps will be made.
    """

    def __init__(
        self, splits: Sequence[FitSplit], mean: np.ndarray, covariance: np.ndarray, rows: np.ndarray, steps: int
    ) -> None:
        self.target = np.array([split.target for split in splits])
        self.train = np.stack([split.train for split in splits], axis=1)
        self.test = np.stack([split.test for split in splits], axis=1)
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
        self.absent = np.where(present, 0.0, -np.inf)  # added to the logits of classes without training rows
        self.weights = np.zeros((d + 1, len(splits), rows.shape[1]))
        # averages over the second half and over the last quarter of the steps; if they differ, it did not converge
        self.averages = [np.zeros_like(self.weights), np.zeros_like(self.weights)]
        self.counts, self.done, self.steps = [0, 0], 0, steps

    def learn(self, part: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
        """One step on rows `[row]`, `[row, feature]` and class indices `[row, target]`."""
        z, true_class = self._features(x), y[:, self.target]
        logits = np.tensordot(z, self.weights, axes=1) + self.absent
        logits -= logits.max(axis=2, keepdims=True)
        residual = np.exp(logits)
        residual /= residual.sum(axis=2, keepdims=True)
        index = true_class[..., None]
        np.put_along_axis(residual, index, np.take_along_axis(residual, index, 2) - 1, 2)
        weight = self.class_weight[np.arange(len(self.target)), true_class] * self.train[part]
        residual *= weight[..., None]
        n_train = np.maximum(self.train[part].sum(axis=0), 1)
        gradient = np.tensordot(z, residual, axes=(0, 0)) / n_train[:, None]
        gradient[:-1] += self.penalty[:, None] * self.weights[:-1]
        self.weights -= np.tensordot(self.step, gradient, axes=1)
        self.done += 1
        for k, begin in enumerate((self.steps // 2, 3 * self.steps // 4)):
            if self.done > begin:
                self.counts[k] += 1
                self.averages[k] += (self.weights - self.averages[k]) / self.counts[k]

    def count_correct(self, part: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """`[average, split, class, 2]`: test rows of each class, and those classified correctly by each average."""
        z, true_class = self._features(x), y[:, self.target]
        tested = self.test[part]
        n_classes = self.weights.shape[2]
        table = np.zeros((2, len(self.target), n_classes, 2))
        for k, average in enumerate(self.averages):
            correct = (np.tensordot(z, average, axes=1) + self.absent).argmax(axis=2) == true_class
            for c in range(n_classes):
                of_class = tested & (true_class == c)
                table[k, :, c, 0], table[k, :, c, 1] = of_class.sum(axis=0), (of_class & correct).sum(axis=0)
        return table

    def unstandardised(self, split: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights `[class, feature]` and intercepts `[class]` in the features' own units."""
        fitted = self.averages[0][:, split].T
        weights = fitted[:, :-1] / self.scale
        return weights, fitted[:, -1] - weights @ self.mean

    def _features(self, x: np.ndarray) -> np.ndarray:
        z = (x.astype(np.float64) - self.mean) / self.scale
        return np.concatenate([z, np.ones((len(z), 1))], axis=1)


def balanced_accuracy_from_counts(table: np.ndarray) -> np.ndarray:
    """Balanced accuracy `[...]` of `[..., class, (tested, correct)]`: mean recall over the classes that were tested."""
    tested = table[..., 0] > 0
    recall = np.where(tested, table[..., 1] / np.maximum(table[..., 0], 1), 0.0)
    return np.asarray(recall.sum(axis=-1) / np.maximum(tested.sum(axis=-1), 1))

"""Logistic regressions of many labels and training sets on the same features, solved together.

Shuffled labels and folds differ in what they predict and in the rows that they leave out, not in the features. So all
fits take their steps together: one matrix product with the features serves all labels, and one factorisation of the
features' correlations serves all labels of a training set. scikit-learn's LogisticRegression solves the same problem
for one label at a time; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.preprocessing import StandardScaler

from marlnb.analysis.stats.lbfgs import minimise

INVERSE_STRENGTH = 0.1
TOLERANCE = 1e-6
"""Largest component of the gradient of a converged fit; the mean loss starts at log(classes)."""
MIN_SCALE = 1e-5
"""A feature that varies less in a training set than this share of its standard deviation counts as constant there:
weights that fit so little variation would throw the predictions of other rows away."""
BLOCK_SIZE = 2**16  # logits that are computed at once: they stay in a processor's cache


@dataclass(frozen=True)
class LogisticFits:
    """Fits of several labels to several training sets, in the features' own units.

    Attributes:
        classes: `[class]`, the labels' values.
        weights: `[set, class, label, feature]`; 0 for a class without training rows.
        intercept: `[set, class, label]`; minus infinity for such a class.
        converged: `[set, label]` bool.
    """

    classes: np.ndarray
    weights: np.ndarray
    intercept: np.ndarray
    converged: np.ndarray

    def predict(self, x: np.ndarray, k: int) -> np.ndarray:
        """The class with the largest logit, `[label, row]`, of `[row, feature]`, by the fits to the k-th set."""
        weights, intercept = self.weights[k], self.intercept[k]
        index = np.empty((weights.shape[1], len(x)), np.intp)
        for rows in _blocks(slice(0, len(x)), intercept.size):
            index[:, rows] = (weights @ x[rows].T.astype(np.float64) + intercept[..., None]).argmax(axis=0)
        return np.asarray(self.classes[index])


def fit_logistics(x: np.ndarray, y: np.ndarray, held_out: Sequence[slice] = (slice(0, 0),)) -> LogisticFits:
    """Multinomial logistic regressions with equally weighted classes, on standardised features z with an intercept:

        min_{W, b}  1/n sum_row n / (n_classes n_class) (-log softmax(W z + b)_class) + |W|^2 / (2 C n)

    with C = INVERSE_STRENGTH and the n rows of the training set. With two classes the penalty counts twice, so that it
    is that of scikit-learn's single weight vector, the difference of the two.

    Args:
        x: `[row, feature]`.
        y: `[row, label]`, classes.
        held_out: the k-th training set has all rows but these.
    Source: the loss of scikit-learn's LogisticRegression with class_weight="balanced". The search starts from the
        curvature at W = 0, which bounds it elsewhere: Böhning 1992, Multinomial logistic regression algorithm.
    """
    classes, index = np.unique(y, return_inverse=True)
    losses = _Losses.of(x, index.reshape(y.shape), len(classes), held_out)
    parameters, converged = minimise(losses, TOLERANCE)
    return losses.fits(classes, parameters, converged)


@dataclass(frozen=True)
class _Losses:
    """The losses of all fits, as functions of parameters `[set, class, label, feature or intercept]`.

    Parameters are those of features that are standardised over the training set. The features themselves are kept once,
    standardised over all rows.

    Attributes:
        z: `[row, feature + 1]`, standardised over all rows, and a column of ones.
        scaler: from a feature's own units to z.
        code: `[label, row]`, label * n_classes + class of the row.
        n_classes: of the labels.
        sets: the training sets.
    """

    z: np.ndarray
    scaler: StandardScaler
    code: np.ndarray
    n_classes: int
    sets: tuple[_TrainingSet, ...]

    @staticmethod
    def of(x: np.ndarray, index: np.ndarray, n_classes: int, held_out: Sequence[slice]) -> _Losses:
        """index: `[row, label]`, of classes."""
        scaler = StandardScaler().fit(x)
        z = np.ones((len(x), x.shape[1] + 1))
        z[:, :-1] = (x - scaler.mean_) / scaler.scale_
        code = np.ascontiguousarray(index.T, dtype=np.int64) + n_classes * np.arange(index.shape[1])[:, None]
        all_rows = _Sums.over(z, code, n_classes)
        sets = tuple(
            _TrainingSet.of(z, rows, all_rows.without(_Sums.over(z[rows], code[:, rows], n_classes)))
            for rows in held_out
        )
        return _Losses(z, scaler, code, n_classes, sets)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the parameters."""
        return len(self.sets), self.n_classes, len(self.code), self.z.shape[1]

    def select(self, sets: np.ndarray, labels: np.ndarray) -> _Losses:
        """The losses of some training sets and labels, by index."""
        renumbered = self.n_classes * (np.arange(len(labels)) - labels)[:, None]
        return replace(self, code=self.code[labels] + renumbered, sets=tuple(self.sets[k].select(labels) for k in sets))

    def precondition(self, gradient: np.ndarray) -> np.ndarray:
        """The gradient times the inverse of the curvature at zero."""
        return np.stack([by_class @ training.inverse_curvature for by_class, training in zip(gradient, self.sets)])

    def evaluate(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses `[set, label]`, and gradients. With the probabilities p and the weight v of a row's class:

        loss = 1/n sum_row v (log sum_c exp(W z)_c - (W z)_class) + ...,    gradient = 1/n sum_row v (p - 1_class) z
        """
        losses, gradients = np.empty((len(self.sets), len(self.code))), np.empty_like(parameters)
        for k, (training, own) in enumerate(zip(self.sets, parameters)):
            weights = training.in_shared_units(own)
            by_row = weights.reshape(-1, weights.shape[-1])
            loss = -np.einsum("clf,clf->l", weights, training.target)
            slope = -training.target.reshape(by_row.shape)
            for rows in training.blocks(len(self.z), len(by_row)):
                row_weight = training.class_weight.ravel()[self.code[:, rows]]
                logits = (by_row @ self.z[rows].T).reshape(*weights.shape[:2], -1)
                if training.absent is not None:
                    logits += training.absent[..., None]
                largest = logits.max(axis=0)
                logits -= largest
                exponentials = np.exp(logits, out=logits)
                total = exponentials.sum(axis=0)
                loss += np.einsum("lr,lr->l", row_weight, np.log(total) + largest)
                exponentials *= row_weight / total
                slope += exponentials.reshape(len(by_row), -1) @ self.z[rows]
            pull = training.penalty[:, None] * own[..., :-1]
            losses[k] = loss / training.n + np.einsum("clf,clf->l", pull, own[..., :-1]) / 2
            gradients[k] = training.in_own_units(slope.reshape(weights.shape)) / training.n
            gradients[k, ..., :-1] += pull
        return losses, gradients

    def fits(self, classes: np.ndarray, parameters: np.ndarray, converged: np.ndarray) -> LogisticFits:
        """The fits in the features' own units."""
        shared = np.stack([training.in_shared_units(own) for training, own in zip(self.sets, parameters)])
        weights = shared[..., :-1] / self.scaler.scale_
        intercept = shared[..., -1] - weights @ self.scaler.mean_
        for of_set, training in zip(intercept, self.sets):
            of_set += 0.0 if training.absent is None else training.absent
        return LogisticFits(classes, weights, intercept, converged)


@dataclass(frozen=True)
class _Sums:
    """Sums over rows.

    Attributes:
        products: `[feature + 1, feature + 1]`, of z.
        by_class: `[class, label, feature + 1]`, of z over the rows of each class; the last column counts them.
    """

    products: np.ndarray
    by_class: np.ndarray

    @staticmethod
    def over(z: np.ndarray, code: np.ndarray, n_classes: int) -> _Sums:
        by_class = np.zeros((n_classes, len(code), z.shape[1]))
        first = n_classes * np.arange(len(code))[:, None]
        for rows in _blocks(slice(0, len(z)), len(code)):
            for k, sums in enumerate(by_class):
                sums += (code[:, rows] == first + k).astype(np.float64) @ z[rows]
        return _Sums(z.T @ z, by_class)

    def without(self, other: _Sums) -> _Sums:
        return _Sums(self.products - other.products, self.by_class - other.by_class)


@dataclass(frozen=True)
class _TrainingSet:
    """What the losses of one training set have in common.

    Attributes:
        held_out: rows that it lacks.
        n: its rows.
        mean: `[feature]`, of z.
        scale: `[feature]`, standard deviation of z.
        inverse_curvature: `[feature + 1, feature + 1]`, of the loss at zero.
        class_weight: `[label, class]`, n / (n_classes n_class); 0 for a class without rows.
        absent: `[class, label]`, minus infinity for a class without rows, else 0; None where all have some.
        target: `[class, label, feature + 1]`, weighted sums of z over the rows of each class.
        penalty: `[label]`.
    """

    held_out: slice
    n: float
    mean: np.ndarray
    scale: np.ndarray
    inverse_curvature: np.ndarray
    class_weight: np.ndarray
    absent: np.ndarray | None
    target: np.ndarray
    penalty: np.ndarray

    @staticmethod
    def of(z: np.ndarray, held_out: slice, sums: _Sums) -> _TrainingSet:
        scaler = StandardScaler()
        for rows in _other_rows(held_out, len(z)):
            scaler.partial_fit(z[rows, :-1])
        mean, n = scaler.mean_, float(sums.products[-1, -1])
        scale = np.where(scaler.scale_ < MIN_SCALE, 1.0, scaler.scale_)
        count = sums.by_class[..., -1]
        present = count > 0
        n_present = present.sum(axis=0)
        class_weight = np.where(present, n / n_present / np.maximum(count, 1), 0.0)
        penalty = np.where(n_present == 2, 2.0, 1.0) / (INVERSE_STRENGTH * n)
        correlation = (sums.products[:-1, :-1] / n - np.outer(mean, mean)) / np.outer(scale, scale)
        curvature = np.eye(len(mean) + 1) / len(count)
        curvature[:-1, :-1] = correlation / len(count) + penalty.min() * np.eye(len(mean))
        return _TrainingSet(
            held_out=held_out,
            n=n,
            mean=mean,
            scale=scale,
            inverse_curvature=np.linalg.inv(curvature),
            class_weight=class_weight.T,
            absent=None if present.all() else np.where(present, 0.0, -np.inf),
            target=class_weight[..., None] * sums.by_class,
            penalty=penalty,
        )

    def select(self, labels: np.ndarray) -> _TrainingSet:
        """The same rows for some of the labels, by index."""
        return replace(
            self,
            class_weight=self.class_weight[labels],
            absent=None if self.absent is None else self.absent[:, labels],
            target=self.target[:, labels],
            penalty=self.penalty[labels],
        )

    def in_shared_units(self, own: np.ndarray) -> np.ndarray:
        """Weights of z with the intercept, `[class, label, feature + 1]`, of parameters of the set's own features."""
        weights = own.copy()
        weights[..., :-1] /= self.scale
        weights[..., -1] -= weights[..., :-1] @ self.mean
        return weights

    def in_own_units(self, slope: np.ndarray) -> np.ndarray:
        """The gradient by the parameters, of that by the weights of z."""
        own = slope.copy()
        own[..., :-1] = (slope[..., :-1] - slope[..., -1:] * self.mean) / self.scale
        return own

    def blocks(self, n_rows: int, n_logits: int) -> Iterator[slice]:
        """The rows, a few at a time."""
        for rows in _other_rows(self.held_out, n_rows):
            yield from _blocks(rows, n_logits)


def _other_rows(rows: slice, n_rows: int) -> list[slice]:
    """All rows but these, in at most two parts."""
    parts = slice(0, rows.start), slice(rows.stop, n_rows)
    return [part for part in parts if part.stop > part.start]


def _blocks(rows: slice, n_logits: int) -> Iterator[slice]:
    """The rows in blocks of about BLOCK_SIZE logits."""
    size = max(1, BLOCK_SIZE // n_logits)
    for start in range(rows.start, rows.stop, size):
        yield slice(start, min(start + size, rows.stop))

"""Linear models of activations, scored on held-out episodes.

Steps of one episode resemble each other, so a split by step lets a model recognise the episode and recall its label: a
label of pure noise, drawn once per episode, was decoded with 0.80 that way and with 0.49 with whole episodes held out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from marlnb.analysis.results import CONFIDENCE
from marlnb.analysis.stats.logistic import fit_logistics
from marlnb.analysis.stats.ridge import fit_ridge

Kind = Literal["classification", "regression"]
MAX_CONSTANT_VARIANCE = 1e-10
"""A label counts as constant if its variance is at most this share of its variance over other rows: rounding."""


@dataclass(frozen=True)
class FoldScores:
    """Scores of one model.

    Attributes:
        scores: `[fold]`.
        converged: whether every fit converged.
    """

    scores: np.ndarray
    converged: bool = True

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Confidence interval of the mean over folds, corrected for the overlap of the training sets.

        With s the standard deviation over k folds and n_test / n_train = 1 / (k - 1):

            mean -+ t_{k-1} sqrt((1 / k + n_test / n_train) s^2)

        Source: Nadeau and Bengio 2003, Inference for the Generalization Error, section 3.
        """
        half_width = float(student.ppf(0.5 + confidence / 2, len(self.scores) - 1) * self._standard_error)
        return self.mean - half_width, self.mean + half_width

    @property
    def p_value(self) -> float:
        """Two-sided, of the corrected t test that the mean is 0; 1 where every score is 0."""
        if not self.mean:
            return 1.0
        with np.errstate(divide="ignore"):
            return float(2 * student.sf(np.abs(self.mean) / self._standard_error, len(self.scores) - 1))

    def __sub__(self, other: FoldScores) -> FoldScores:
        """The differences of two models' scores on the same folds."""
        return FoldScores(self.scores - other.scores, self.converged and other.converged)

    @property
    def _standard_error(self) -> np.floating:
        k = len(self.scores)
        return np.sqrt((1 / k + 1 / (k - 1)) * np.var(self.scores, ddof=1))


def episode_folds(y: np.ndarray, episode: np.ndarray, kind: Kind, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, `[row]` in `[0, folds)`.

    Episodes stay whole; classes are spread evenly over the folds, unless none has a row for each fold.
    """
    fold = np.zeros(len(y), dtype=np.int64)
    spreads_classes = kind == "classification" and np.unique(y, return_counts=True)[1].max() >= folds
    splitter = (StratifiedGroupKFold if spreads_classes else GroupKFold)(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():  # the result warns about rare classes
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        for index, (_, test) in enumerate(splitter.split(np.zeros((len(y), 1)), y, episode)):
            fold[test] = index
    return fold


def score_folds(x: np.ndarray, y: np.ndarray, fold: np.ndarray, kind: Kind) -> FoldScores:
    """Cross-validation: for each fold, fits on all others and scores on that one.

    Args:
        x: `[row, feature]`.
        y: `[row]`.
        fold: `[row]`.
    Returns:
        balanced accuracy, or R^2 = 1 - sum (y - prediction)^2 / sum (y - mean(y))^2, unbounded below.
    """
    return score_labels(x, y[:, None], fold, kind)[0]


def score_labels(x: np.ndarray, y: np.ndarray, fold: np.ndarray, kind: Kind) -> list[FoldScores]:
    """`score_folds` for several labels `[row, label]` of the same rows, which are fitted together."""
    tests = [fold == number for number in np.unique(fold)]
    if kind == "classification":
        scores, converged = _score_classes(x, y, tests)
    else:
        scores = np.stack([_score_quantities(x[~test], y[~test], x[test], y[test]) for test in tests], axis=1)
        converged = np.ones(len(scores), bool)
    return [FoldScores(by_fold, bool(all_converged)) for by_fold, all_converged in zip(scores, converged)]


def _score_quantities(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> np.ndarray:
    """R^2 `[label]` on test rows of ridge regressions of quantities `[row, label]`."""
    low, high = y.min(axis=0), y.max(axis=0)
    # a feature that hardly varied in training can push a prediction to 1e30: clip to twice the labels' range
    predicted = np.clip(fit_ridge(x, y).predict(x_test), 2 * low - high, 2 * high - low)
    residual = ((y_test - predicted) ** 2).sum(axis=0)
    total = ((y_test - y_test.mean(axis=0)) ** 2).sum(axis=0)
    constant = total <= MAX_CONSTANT_VARIANCE * len(y_test) * y.var(axis=0)  # no variance to explain
    return np.where(constant, 0.0, 1 - residual / np.where(constant, 1, total))


def _score_classes(x: np.ndarray, y: np.ndarray, tests: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Balanced accuracies `[label, test]` of logistic regressions fitted to all rows but those of a test `[row]`, which
    do not overlap; and whether all fits of a label converged, `[label]`."""
    number = np.full(len(x), len(tests))
    for k, test in enumerate(tests):
        number[test] = k
    order = np.argsort(number, kind="stable")
    stops = np.cumsum(np.bincount(number, minlength=len(tests))[: len(tests)])
    held_out = [slice(int(stop - test.sum()), int(stop)) for stop, test in zip(stops, tests)]
    x, y = x[order], y[order]
    fits = fit_logistics(x, y, held_out)
    scores = [
        [balanced_accuracy(truth, predicted) for truth, predicted in zip(y[rows].T, fits.predict(x[rows], k))]
        for k, rows in enumerate(held_out)
    ]
    return np.array(scores).T, np.asarray(fits.converged.all(axis=0))


def fit_logistic(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights `[class, feature]` and intercepts `[class]` in the features' own units, fitted to standardised features.

    The prediction is the class with the largest `x @ weights.T + intercept`. Two classes have opposite weights.
    """
    fits = fit_logistics(x, y[:, None])
    return fits.weights[0, :, 0], fits.intercept[0, :, 0]


def balanced_accuracy(y: np.ndarray, predicted: np.ndarray) -> float:
    """Mean recall over the classes in y: (1 / n_classes) sum_c P(predicted = c | y = c).

    A constant prediction scores 1 / n_classes, however unequal the classes.

    Source: Brodersen et al. 2010, The Balanced Accuracy and Its Posterior Distribution.
    """
    return float(np.mean([np.mean(predicted[y == label] == label) for label in np.unique(y)]))


def constant_score(y: np.ndarray, fold: np.ndarray, kind: Kind) -> float:
    """The score of the best constant prediction, as `score_folds` would compute it.

    1 / n_classes where every fold has every class, more where a fold lacks one; 0 for a regression.

    Args:
        y: `[row]`.
        fold: `[row]`.
    """
    if kind == "regression":
        return 0.0
    classes, class_index = np.unique(y, return_inverse=True)
    folds, fold_index = np.unique(fold, return_inverse=True)
    present = np.zeros((len(folds), len(classes)), bool)
    present[fold_index, class_index] = True
    return float((present / present.sum(axis=1, keepdims=True)).mean(axis=0).max())


def control_labels(y: np.ndarray, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    """A random label for each episode `[episode]`: shuffled classes, at least two of them, or standard normal numbers.

    Args:
        y: `[episode]`, the label of its first row.
    """
    if kind == "regression":
        return rng.standard_normal(len(y))
    shuffled = rng.permutation(y)
    return shuffled if len(np.unique(shuffled)) > 1 else rng.permutation(np.arange(len(y)) % 2)


def control_task_score(
    x: np.ndarray, y: np.ndarray, episode: np.ndarray, kind: Kind, rng: np.random.Generator
) -> float | None:
    """The score on a control task: a random label for each episode, with every other step held out.

    Only recognising the episode solves it, so it measures how much the model can memorise:
    selectivity = score - control_task_score. None where episodes have one row each.

    Source: Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks, section 2 (arXiv:1909.03368),
        with the episode as the type that carries a random label.
    """
    _, start, number = np.unique(episode, return_index=True, return_inverse=True)
    odd = (np.arange(len(y)) - start[number]) % 2 == 1
    if not odd.any():
        return None
    control = control_labels(y[start], kind, rng)[number]
    if kind == "regression":
        return float(_score_quantities(x[~odd], control[~odd, None], x[odd], control[odd, None])[0])
    return float(_score_classes(x, control[:, None], [odd])[0][0, 0])

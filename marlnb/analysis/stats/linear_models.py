"""Linear models fitted to activations, scored on episodes that they have not seen.

Steps of one episode resemble each other, so a split by step lets a model recognise the episode and answer from memory
(a label of pure noise, drawn once an episode, was decoded at 0.80 that way and at 0.49 with episodes kept whole).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

from marlnb.analysis.stats.ridge import fit_ridge

Kind = Literal["classification", "regression"]
INVERSE_STRENGTH = 0.1
STANDS_STILL = 1e-10
"""A label whose variance is this share of its variance elsewhere does not vary: what is left is rounding."""


@dataclass(frozen=True)
class FoldScores:
    """Scores of one model, `[fold]`, and whether each fit converged."""

    scores: np.ndarray
    converged: bool = True

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided confidence interval of the mean over folds, corrected for the training sets' overlap.

        Source: Nadeau and Bengio 2003, Inference for the Generalization Error, section 3: the variance of the mean of
        k folds is (1/k + n_test/n_train) s^2, here with n_test/n_train = 1/(k - 1).
        """
        k = len(self.scores)
        spread = np.sqrt((1 / k + 1 / (k - 1)) * np.var(self.scores, ddof=1))
        half = float(student.ppf(0.5 + confidence / 2, k - 1) * spread)
        return self.mean - half, self.mean + half


def episode_folds(y: np.ndarray, episode: np.ndarray, kind: Kind, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, `[row]` in `[0, folds)`: whole episodes, classes spread evenly over the folds."""
    fold = np.zeros(len(y), dtype=np.int64)
    splitter: StratifiedGroupKFold | GroupKFold
    if kind == "classification":
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    else:
        splitter = GroupKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():  # a rare class is said in the result instead
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        for index, (_, test) in enumerate(splitter.split(np.zeros((len(y), 1)), y, episode)):
            fold[test] = index
    return fold


def score_folds(x: np.ndarray, y: np.ndarray, fold: np.ndarray, kind: Kind) -> FoldScores:
    """Fits on all folds but one, scores on that one, for each.

    Args:
        x: `[row, feature]`; y: `[row]`; fold: `[row]`.
    Returns:
        balanced accuracy, or the coefficient of determination R^2 (0 for the test fold's mean, unbounded below).
    """
    return score_labels(x, y[:, None], fold, kind)[0]


def score_labels(x: np.ndarray, y: np.ndarray, fold: np.ndarray, kind: Kind) -> list[FoldScores]:
    """`score_folds` for each of several labels `[row, label]` of the same rows: what they share is computed once."""
    scores, converged = np.zeros((y.shape[1], len(np.unique(fold)))), np.ones(y.shape[1], bool)
    for place, index in enumerate(np.unique(fold)):
        test = fold == index
        scores[:, place], fine = fit_and_score(x[~test], y[~test], x[test], y[test], kind)
        converged &= fine
    return [FoldScores(found, bool(fine)) for found, fine in zip(scores, converged)]


def fit_and_score(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, kind: Kind
) -> tuple[np.ndarray, np.ndarray]:
    """Linear models of labels `[row, label]` on standardised features; scores on other rows and whether they converged.

    Returns:
        `[label]` each.
    """
    if kind == "regression":
        low, high = y.min(axis=0), y.max(axis=0)
        # a feature that hardly moved in the fit can throw a prediction to 1e30: none may lie farther off than labels do
        predicted = np.clip(fit_ridge(x, y).predict(x_test), 2 * low - high, 2 * high - low)
        missed = ((y_test - predicted) ** 2).sum(axis=0)
        total = ((y_test - y_test.mean(axis=0)) ** 2).sum(axis=0)
        # where the label stands still, but for rounding, there is no variance to explain
        still = total <= STANDS_STILL * len(y_test) * y.var(axis=0)
        score = np.where(still, 0.0, 1 - missed / np.where(still, 1, total))
        return score, np.ones(y.shape[1], bool)
    scaler = StandardScaler().fit(x)
    x, x_test = scaler.transform(x), scaler.transform(x_test)
    found = [_classify(x, one, x_test, other) for one, other in zip(y.T, y_test.T)]
    return np.array([score for score, _ in found]), np.array([fine for _, fine in found])


def _classify(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> tuple[float, bool]:
    if len(np.unique(y)) < 2:  # nothing to tell apart in training: the constant answer
        return balanced_accuracy(y_test, np.full(len(y_test), y[0])), True
    model, converged = _logistic(x, y)
    return balanced_accuracy(y_test, model.predict(x_test)), converged


def _logistic(x: np.ndarray, y: np.ndarray) -> tuple[LogisticRegression, bool]:
    """Every class weighs the same, however many rows it has."""
    model = LogisticRegression(C=INVERSE_STRENGTH, class_weight="balanced", max_iter=1000, tol=1e-3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(x, y)
    return model, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def fit_logistic(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights `[class, feature]` and intercepts `[class]` in the features' own units, fitted to standardised ones.

    The largest of `x @ weights.T + intercept` is the answer; of two classes each has minus the other's weights.
    """
    scaler = StandardScaler().fit(x)
    model, _ = _logistic(scaler.transform(x), y)
    weights = model.coef_ / scaler.scale_
    intercept = model.intercept_ - weights @ scaler.mean_
    if len(weights) == 1:
        return np.concatenate([-weights, weights]) / 2, np.concatenate([-intercept, intercept]) / 2
    return weights, intercept


def balanced_accuracy(y: np.ndarray, predicted: np.ndarray) -> float:
    """Recall averaged over the classes in `y`: 1 / classes for a constant answer, however unequal the classes."""
    return float(np.mean([np.mean(predicted[y == label] == label) for label in np.unique(y)]))


def constant_score(y: np.ndarray, fold: np.ndarray, kind: Kind) -> float:
    """What the best constant answer scores as `score_folds` does: 1 / classes where every fold has every class, more
    where a class is missing from some; 0 for a quantity.

    Args:
        y: `[row]`; fold: `[row]`.
    """
    if kind == "regression":
        return 0.0
    present, place = np.unique(y, return_inverse=True)
    folds, part = np.unique(fold, return_inverse=True)
    held = np.zeros((len(folds), len(present)), bool)
    held[part, place] = True
    return float((held / held.sum(axis=1, keepdims=True)).mean(axis=0).max())


def permute_by_episode(y: np.ndarray, episode: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels that belong to another episode: each episode gets the whole course of one drawn without replacement.

    The labels' frequencies and their course in time stay; only their relation to the activations is cut. A course that
    is too short goes on with its last label. Rows must lie in order of episode and time.
    """
    _, start, number, length = np.unique(episode, return_index=True, return_inverse=True, return_counts=True)
    donor = rng.permutation(len(start))[number]
    place = np.arange(len(y)) - start[number]
    return y[start[donor] + np.minimum(place, length[donor] - 1)]


def memorised_score(
    x: np.ndarray, y: np.ndarray, episode: np.ndarray, kind: Kind, rng: np.random.Generator
) -> float | None:
    """What the model scores on a control task: a random label for each episode, every other step held out.

    Nothing but recognising the episode solves it, so it measures how much the model can memorise. None where the
    episodes have one row each.

    Source: Hewitt and Liang 2019, Designing and Interpreting Probes with Control Tasks, section 2 (arXiv:1909.03368),
        with the episode as the type that carries a random label.
    """
    _, start, number = np.unique(episode, return_index=True, return_inverse=True)
    odd = (np.arange(len(y)) - start[number]) % 2 == 1
    if not odd.any():
        return None
    control = rng.permutation(y[start])[number] if kind == "classification" else rng.standard_normal(len(start))[number]
    if kind == "classification" and len(np.unique(control)) < 2:
        control = rng.permutation(np.arange(len(start)) % 2)[number]
    return float(fit_and_score(x[~odd], control[~odd, None], x[odd], control[odd, None], kind)[0][0])

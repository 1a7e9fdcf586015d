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
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Kind = Literal["classification", "regression"]
INVERSE_STRENGTH = 0.1
RIDGE_STRENGTHS = tuple(10.0**k for k in range(-2, 5))


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
    scores, converged = [], True
    for index in np.unique(fold):
        test = fold == index
        score, fine = fit_and_score(x[~test], y[~test], x[test], y[test], kind)
        scores.append(score)
        converged &= fine
    return FoldScores(np.array(scores), converged)


def fit_and_score(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, kind: Kind
) -> tuple[float, bool]:
    """A linear model on standardised features; its score on other rows, and whether the fit converged."""
    if kind == "regression":
        ridge = make_pipeline(StandardScaler(), RidgeCV(RIDGE_STRENGTHS)).fit(x, y)
        return float(r2_score(y_test, ridge.predict(x_test))), True
    if len(np.unique(y)) < 2:  # nothing to tell apart in training: the constant answer
        return balanced_accuracy(y_test, np.full(len(y_test), y[0])), True
    model = LogisticRegression(C=INVERSE_STRENGTH, class_weight="balanced", max_iter=1000, tol=1e-3)
    pipeline = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        pipeline.fit(x, y)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return balanced_accuracy(y_test, pipeline.predict(x_test)), converged


def balanced_accuracy(y: np.ndarray, predicted: np.ndarray) -> float:
    """Recall averaged over the classes in `y`: 1 / classes for a constant answer, however unequal the classes."""
    return float(np.mean([np.mean(predicted[y == label] == label) for label in np.unique(y)]))


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
    return fit_and_score(x[~odd], control[~odd], x[odd], control[odd], kind)[0]

"""Folds, scores, intervals and permutations, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marlnb.analysis.stats.bootstrap import half_sample_interval, p_value_above
from marlnb.analysis.stats.linear_models import (
    FoldScores,
    balanced_accuracy,
    constant_score,
    control_task_score,
    episode_folds,
    score_folds,
    score_labels,
)
from marlnb.analysis.stats.ridge import RIDGE_STRENGTHS

EPISODE = np.repeat(np.arange(20), 5)


def test_folds_of_classes_that_are_all_rarer_than_folds_hold_whole_episodes() -> None:
    fold = episode_folds(np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2]), np.arange(10), "classification", 5, seed=0)
    assert np.bincount(fold).tolist() == [2] * 5


def test_balanced_accuracy_by_hand() -> None:
    y, predicted = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 0])
    assert balanced_accuracy(y, predicted) == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert balanced_accuracy(y, np.zeros(6)) == 0.5


def test_the_constant_answer_by_hand() -> None:
    fold = np.array([0, 0, 1, 1, 2, 2])
    assert constant_score(np.array([0, 1, 0, 1, 1, 0]), fold, "classification") == 0.5
    rare = np.array([0, 1, 0, 0, 0, 0])  # 0 is right everywhere but for half of fold 0
    assert constant_score(rare, fold, "classification") == pytest.approx((0.5 + 1 + 1) / 3)
    constant = [balanced_accuracy(rare[fold == k], np.zeros(2)) for k in range(3)]
    assert constant_score(rare, fold, "classification") == pytest.approx(np.mean(constant))
    assert constant_score(np.array([0, 1, 0, 2, 1, 2]), fold, "classification") == pytest.approx(1 / 3)
    assert constant_score(rare.astype(float), fold, "regression") == 0


def test_the_interval_by_hand() -> None:
    scores = FoldScores(np.array([0.7, 0.8, 0.9, 0.8, 0.8]))
    spread = np.sqrt((1 / 5 + 1 / 4) * 0.005)  # sample variance 0.005; t quantile of 4 degrees of freedom 2.7764
    assert scores.interval() == pytest.approx((0.8 - 2.7764451 * spread, 0.8 + 2.7764451 * spread))


def test_the_interval_of_half_samples_by_hand() -> None:
    """95% of these values are within 0.95; a half of five blocks has two, so deviations shrink by sqrt(2 / 3)."""
    low, high = half_sample_interval(0.0, np.linspace(-1, 1, 41), n_blocks=5)
    assert (low, high) == pytest.approx((-0.95 * (2 / 3) ** 0.5, 0.95 * (2 / 3) ** 0.5))


def test_a_shuffle_that_ties_counts_against_the_value() -> None:
    assert p_value_above(1.0, np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(2 / 5)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_no_episode_is_in_two_folds(kind: str) -> None:
    y = (EPISODE % 2).astype(float if kind == "regression" else int)
    fold = episode_folds(y, EPISODE, kind, 4, seed=0)  # type: ignore[arg-type]
    assert all(len(np.unique(fold[e == EPISODE])) == 1 for e in range(20))
    assert np.bincount(fold).tolist() == [25, 25, 25, 25]
    if kind == "classification":
        assert all(y[fold == k].mean() == pytest.approx(0.5, abs=0.11) for k in range(4))


def test_what_identifies_the_episode_can_be_memorised_and_noise_cannot() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20)[EPISODE]
    identity = np.eye(20)[EPISODE]
    assert control_task_score(identity, y, EPISODE, "classification", rng) == 1.0
    noise = rng.standard_normal((100, 3))
    assert control_task_score(noise, y, EPISODE, "classification", rng) < 0.75  # type: ignore[operator]
    assert control_task_score(identity[::5], y[::5], EPISODE[::5], "classification", rng) is None


def test_scores_of_a_known_answer() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((100, 4))
    fold = EPISODE % 5
    assert score_folds(x, x @ np.array([1.0, -2.0, 0.0, 3.0]), fold, "regression").mean == pytest.approx(1, abs=1e-4)
    assert score_folds(x, (x[:, 0] > 0).astype(int), fold, "classification").mean > 0.9
    assert score_folds(x, np.ones(100, int), fold, "classification").mean == 1.0


def test_shared_factors_give_scikit_learns_scores() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((100, 12)) + 5, rng.standard_normal((100, 3))
    y[:, 0] += x[:, 0]
    fold = EPISODE % 4
    for column, result in enumerate(score_labels(x, y, fold, "regression")):
        for k, score in enumerate(result.scores):
            model = make_pipeline(StandardScaler(), RidgeCV(RIDGE_STRENGTHS)).fit(x[fold != k], y[fold != k, column])
            assert score == pytest.approx(model.score(x[fold == k], y[fold == k, column]), abs=1e-9)


def test_a_rare_class_counts_as_much_as_a_common_one() -> None:
    rng = np.random.default_rng(3)
    episode = np.repeat(np.arange(400), 5)
    y = (rng.random(2000) < 0.05).astype(int)
    fold = episode_folds(y, episode, "classification", 5, seed=0)
    noise = rng.standard_normal((2000, 4))
    assert score_folds(noise, y, fold, "classification").mean == pytest.approx(0.5, abs=0.06)  # not 0.95
    known = noise + 3 * y[:, None] * np.array([1.0, 0, 0, 0])
    assert score_folds(known, y, fold, "classification").mean > 0.9


def test_a_feature_that_hardly_moved_in_the_fit_does_not_throw_predictions_away() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 3)), rng.standard_normal(200)
    fold = np.arange(200) % 5
    x[fold != 0, 2] *= 1e-20
    score = score_folds(x, y, fold, "regression").scores[0]
    assert -((2 * np.ptp(y)) ** 2) / y[fold == 0].var() <= score < 0  # unclipped: -1e37

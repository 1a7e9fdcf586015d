"""Logistic regressions of many labels and folds at once, against scikit-learn's, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from marlnb.analysis.stats.linear_models import balanced_accuracy, score_labels
from marlnb.analysis.stats.logistic import fit_logistics
from marlnb.analysis.stats.streaming_logistic import StreamingLogistic
from marlnb.analysis.stats.streaming_problems import FitSplit

N, FOLDS = 300, 4


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated features with a constant one; labels: three classes, two of them, one, noise; folds."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((6, 6))
    x = np.concatenate([10 + rng.standard_normal((N, 6)) @ mixing, np.full((N, 1), 3.0)], axis=1)
    three = (x[:, :3] + rng.standard_normal((N, 3))).argmax(axis=1)
    rare = np.where(np.arange(N) < 20, 2, x[:, 1] > x[:, 1].mean())  # the first fold holds all rows of class 2
    y = np.stack([three, (x[:, 0] > 10).astype(int), np.ones(N, int), rng.integers(0, 3, N), rare], axis=1)
    return x, y, np.repeat(np.arange(FOLDS), N // FOLDS)


def oracle(x: np.ndarray, y: np.ndarray) -> tuple[LogisticRegression, StandardScaler]:
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(C=0.1, class_weight="balanced", tol=1e-10, max_iter=10000)
    return model.fit(scaler.transform(x), y), scaler


def test_each_fit_is_scikit_learns(rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, y, fold = rows
    size = N // FOLDS
    fits = fit_logistics(x, y, [slice(k * size, (k + 1) * size) for k in range(FOLDS)])
    assert fits.converged.all() and fits.weights.shape == (FOLDS, 3, 5, 7)
    for k in range(FOLDS):
        train, test = x[fold != k], x[fold == k]
        assert (fits.predict(test, k)[2] == 1).all()  # a label of one class
        for label in (0, 1, 3, 4):
            model, scaler = oracle(train, y[fold != k, label])
            logits = test @ fits.weights[k, :, label].T + fits.intercept[k, :, label]
            present = model.classes_
            assert np.isneginf(np.delete(logits, present, axis=1)).all()
            expected = model.decision_function(scaler.transform(test))
            if len(present) == 2:
                actual = logits[:, present[1]] - logits[:, present[0]]
            else:
                actual, expected = (values - values[:, :1] for values in (logits, expected))
            np.testing.assert_allclose(actual, expected, atol=1e-4)
            assert (fits.predict(test, k)[label] == model.predict(scaler.transform(test))).all()


def test_scores_of_labels_are_those_of_separate_fits(rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, y, fold = rows
    shuffled = np.random.default_rng(1).permutation(N)
    x, y, fold = x[shuffled], y[shuffled], fold[shuffled]
    scores = score_labels(x, y[:, [0, 4]], fold, "classification")
    for column, result in zip((0, 4), scores):
        for k, score in enumerate(result.scores):
            model, scaler = oracle(x[fold != k], y[fold != k, column])
            predicted = model.predict(scaler.transform(x[fold == k]))
            assert score == pytest.approx(balanced_accuracy(y[fold == k, column], predicted), abs=1e-12)


def test_a_streamed_fit_of_two_classes_is_scikit_learns(rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, y = rows[0][:, :6], rows[1][:, 1:2]
    split, everything = FitSplit(0, np.array([True]), np.array([False])), np.zeros(N, int)
    streamed = StreamingLogistic([split], x.mean(0), np.cov(x.T, bias=True), np.bincount(y[:, 0])[None], steps=300)
    for _ in range(300):
        streamed.learn(everything, x, y)
    weights, intercepts = streamed.unstandardised(0)
    model, scaler = oracle(x, y[:, 0])
    np.testing.assert_allclose(weights[1] - weights[0], model.coef_[0] / scaler.scale_, rtol=1e-3)
    expected = model.decision_function(scaler.transform(x))
    np.testing.assert_allclose(x @ (weights[1] - weights[0]) + intercepts[1] - intercepts[0], expected, atol=1e-3)


def test_blocks_of_rows_do_not_change_the_fit(
    rows: tuple[np.ndarray, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, _ = rows
    whole = fit_logistics(x, y)
    monkeypatch.setattr("marlnb.analysis.stats.logistic.BLOCK_SIZE", 500)
    np.testing.assert_allclose(fit_logistics(x, y).weights, whole.weights, atol=1e-5)


def test_a_feature_that_hardly_varies_in_a_training_set_counts_as_constant_there() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((200, 3)), rng.integers(0, 2, (200, 1))
    x[40:, 2] *= 1e-9
    fits = fit_logistics(x, y, [slice(0, 40), slice(40, 80)])
    assert fits.converged.all() and abs(fits.weights[0, ..., 2]).max() < 1e-6 < abs(fits.weights[1, ..., 2]).max()
    model, scaler = oracle(x[40:, :2], y[40:, 0])
    assert (fits.predict(x[:40], 0)[0] == model.predict(scaler.transform(x[:40, :2]))).all()

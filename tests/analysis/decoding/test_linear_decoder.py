"""Directions: the planted one is found, the filter and the pattern each where it should lie, erasure leaves nothing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from marlnb.analysis.decoding.linear_decoder import Reading, fit_reading
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import AnalysisError

RNG = np.random.default_rng(0)
MIXING = RNG.standard_normal((8, 8)) @ np.diag(np.linspace(0.3, 2, 8))
NOISE = RNG.standard_normal((4000, 8)) @ MIXING  # correlated units
PLANTED = np.linspace(1, -1, 8) / np.linalg.norm(np.linspace(1, -1, 8))
COLOURS = ("red", "green", "blue")


def reading(x: np.ndarray, y: np.ndarray, kind: Kind, classes: tuple[str, ...] = ()) -> Reading:
    told = {"site": "a/actor/hidden_1", "agent": "a_0", "t": None, "offset": 0, "label": "goal"}
    return fit_reading(x, y, kind, classes=classes, **told)  # type: ignore[arg-type]


def cosine(vector: tuple[float, ...], other: np.ndarray) -> float:
    return float(np.array(vector) @ other / np.linalg.norm(other))


def test_the_pattern_is_where_a_quantity_moves_the_units_and_the_filter_what_reads_it() -> None:
    y = RNG.standard_normal(4000)
    moved = NOISE + 6 * y[:, None] * PLANTED
    found = reading(moved, y, "regression").direction()
    assert cosine(found.vector, PLANTED) > 0.99 and found.concept == "goal"
    projected = moved @ np.array(found.vector)
    assert (found.mean, found.scale) == pytest.approx((projected.mean(), projected.std()))
    read = NOISE @ PLANTED
    measured = reading(NOISE, read, "regression")
    assert cosine(measured.direction(kind="filter").vector, PLANTED) > 0.999
    haufe = np.cov(NOISE.T) @ PLANTED  # equation 6 of Haufe et al.: the filter times the covariance
    assert cosine(measured.direction().vector, haufe) > 0.999 > cosine(measured.direction().vector, PLANTED)


def test_the_direction_between_two_classes_is_that_between_their_means() -> None:
    y = RNG.integers(0, 3, 4000)
    places = 4 * np.linalg.qr(RNG.standard_normal((8, 3)))[0].T
    found = reading(NOISE + places[y], y, "classification", COLOURS)
    means = np.stack([(NOISE + places[y])[y == k].mean(axis=0) for k in range(3)])
    assert cosine(found.direction(("red", "blue")).vector, means[0] - means[2]) == pytest.approx(1)
    others = (NOISE + places[y])[y != 1].mean(axis=0)
    assert cosine(found.direction("green").vector, means[1] - others) == pytest.approx(1)
    projected = (NOISE + places[y]) @ np.array(found.direction("green", kind="filter").vector)
    assert found.direction("green", kind="filter").scale == pytest.approx(projected.std())
    assert found.direction(("red", "blue")).concept == "goal = red rather than blue"


def test_the_largest_output_is_scikit_learns_answer() -> None:
    for n_classes in (2, 3):
        y = (NOISE[:, :1] + NOISE[:, 1:2] * np.arange(n_classes)).argmax(axis=1)
        found = reading(NOISE, y, "classification", COLOURS[:n_classes])
        scaled = (NOISE - NOISE.mean(0)) / NOISE.std(0)
        oracle = LogisticRegression(C=0.1, class_weight="balanced", tol=1e-6, max_iter=1000).fit(scaled, y)
        answers = (NOISE @ found.weights.T + found.intercept).argmax(axis=1)
        assert (answers == oracle.predict(scaled)).mean() > 0.995


@pytest.mark.parametrize("classes", [(), COLOURS])
def test_without_the_patterns_no_linear_model_reads_anything(classes: tuple[str, ...]) -> None:
    y = RNG.standard_normal(4000) if not classes else RNG.integers(0, 3, 4000)
    x = NOISE + np.outer(y, PLANTED) * 3
    found = reading(x, y, "classification" if classes else "regression", classes)
    left = x - x.mean(axis=0)
    basis = np.linalg.qr(np.array([found.direction(c).vector for c in classes or (None,)]).T)[0][:, : len(classes) or 1]
    left = left - left @ basis @ basis.T
    assert LinearRegression().fit(left, y).score(left, y) < 1e-6
    filtered = np.array(found.direction("blue" if classes else None, kind="filter").vector)
    by_filter = x - np.outer(x @ filtered, filtered)
    assert LinearRegression().fit(by_filter, y).score(by_filter, y) > 0.05  # the label lay elsewhere too


def test_a_direction_that_is_not_there_is_refused() -> None:
    three = reading(NOISE, RNG.integers(0, 3, 4000), "classification", COLOURS)
    with pytest.raises(AnalysisError, match="the direction of which value"):
        three.direction()
    with pytest.raises(AnalysisError, match="did you mean 'green'"):
        three.direction("gren")
    with pytest.raises(AnalysisError, match="is a quantity"):
        reading(NOISE, NOISE[:, 0], "regression").direction("red")
    two = reading(NOISE, (NOISE[:, 0] > 0).astype(int), "classification", ("False", "True"))
    assert two.direction() == two.direction("True")

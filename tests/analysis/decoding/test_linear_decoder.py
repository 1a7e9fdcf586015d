"""Directions of linear decoders: filter and pattern point where theory says, and erasure leaves nothing to decode."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from marlnb.analysis.decoding.linear_decoder import LinearDecoder, fit_linear
from marlnb.analysis.stats.linear_models import Kind
from marlnb.errors import AnalysisError

RNG = np.random.default_rng(0)
MIXING = RNG.standard_normal((8, 8)) @ np.diag(np.linspace(0.3, 2, 8))
NOISE = RNG.standard_normal((4000, 8)) @ MIXING  # correlated units
PLANTED = np.linspace(1, -1, 8) / np.linalg.norm(np.linspace(1, -1, 8))
COLOURS = ("red", "green", "blue")


def decoder(x: np.ndarray, y: np.ndarray, kind: Kind, classes: tuple[str, ...] = ()) -> LinearDecoder:
    options = {"site": "a/actor/hidden_1", "agent": "a_0", "t": None, "offset": 0, "label": "goal"}
    return fit_linear(x, y, kind).decoder(classes=classes, **options)  # type: ignore[arg-type]


def cosine(vector: tuple[float, ...], other: np.ndarray) -> float:
    return float(np.array(vector) @ other / np.linalg.norm(other))


def test_the_pattern_is_how_units_move_and_the_filter_is_what_reads_them() -> None:
    y = RNG.standard_normal(4000)
    moved = NOISE + 6 * y[:, None] * PLANTED
    result = decoder(moved, y, "regression").direction()
    assert cosine(result.vector, PLANTED) > 0.99 and result.concept == "goal"
    projected = moved @ np.array(result.vector)
    assert (result.mean, result.scale) == pytest.approx((projected.mean(), projected.std()))
    read = NOISE @ PLANTED
    measured = decoder(NOISE, read, "regression")
    assert cosine(measured.direction(kind="filter").vector, PLANTED) > 0.999
    haufe = np.cov(NOISE.T) @ PLANTED  # equation 6 of Haufe et al.: the filter times the covariance
    assert cosine(measured.direction().vector, haufe) > 0.999 > cosine(measured.direction().vector, PLANTED)


def test_the_direction_between_two_classes_is_the_difference_of_their_means() -> None:
    y = RNG.integers(0, 3, 4000)
    centres = 4 * np.linalg.qr(RNG.standard_normal((8, 3)))[0].T
    result = decoder(NOISE + centres[y], y, "classification", COLOURS)
    means = np.stack([(NOISE + centres[y])[y == k].mean(axis=0) for k in range(3)])
    assert cosine(result.direction(("red", "blue")).vector, means[0] - means[2]) == pytest.approx(1)
    others = (NOISE + centres[y])[y != 1].mean(axis=0)
    assert cosine(result.direction("green").vector, means[1] - others) == pytest.approx(1)
    projected = (NOISE + centres[y]) @ np.array(result.direction("green", kind="filter").vector)
    assert result.direction("green", kind="filter").scale == pytest.approx(projected.std())
    assert result.direction(("red", "blue")).concept == "goal = red rather than blue"


def test_the_largest_output_is_scikit_learns_prediction() -> None:
    for n_classes in (2, 3):
        y = NOISE[:, :n_classes].argmax(axis=1)
        result = decoder(NOISE, y, "classification", COLOURS[:n_classes])
        scaled = (NOISE - NOISE.mean(0)) / NOISE.std(0)
        oracle = LogisticRegression(C=0.1, class_weight="balanced", tol=1e-6, max_iter=1000).fit(scaled, y)
        predictions = (NOISE @ result.weights.T + result.intercept).argmax(axis=1)
        assert (predictions == oracle.predict(scaled)).mean() > 0.995


@pytest.mark.parametrize("classes", [(), COLOURS])
def test_after_erasing_the_patterns_no_linear_model_decodes_the_label(classes: tuple[str, ...]) -> None:
    y = RNG.standard_normal(4000) if not classes else RNG.integers(0, 3, 4000)
    x = NOISE + np.outer(y, PLANTED) * 3
    result = decoder(x, y, "classification" if classes else "regression", classes)
    left = x - x.mean(axis=0)
    basis = np.linalg.qr(np.array([result.direction(c).vector for c in classes or (None,)]).T)[0][
        :, : len(classes) or 1
    ]
    left = left - left @ basis @ basis.T
    assert LinearRegression().fit(left, y).score(left, y) < 1e-6
    filtered = np.array(result.direction("blue" if classes else None, kind="filter").vector)
    by_filter = x - np.outer(x @ filtered, filtered)
    assert LinearRegression().fit(by_filter, y).score(by_filter, y) > 0.05  # the label is still decodable


def test_a_direction_that_does_not_exist_is_rejected() -> None:
    three = decoder(NOISE, RNG.integers(0, 3, 4000), "classification", COLOURS)
    with pytest.raises(AnalysisError, match="has more than two classes"):
        three.direction()
    with pytest.raises(AnalysisError, match="did you mean 'green'"):
        three.direction("gren")
    with pytest.raises(AnalysisError, match="is a quantity"):
        decoder(NOISE, NOISE[:, 0], "regression").direction("red")
    two = decoder(NOISE, (NOISE[:, 0] > 0).astype(int), "classification", ("False", "True"))
    assert two.direction() == two.direction("True")

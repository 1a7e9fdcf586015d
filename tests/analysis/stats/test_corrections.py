"""Corrections for many questions, against scipy and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from marlnb.analysis.stats.corrections import benjamini_hochberg, holm, max_statistic

P = np.array([0.01, 0.04, 0.03, 0.005])


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, made ascending: .02 .03 .06 .06
    np.testing.assert_allclose(holm(P), [0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.6, 0.9])).tolist() == [1.0, 1.0]


def test_benjamini_hochberg_is_scipys() -> None:
    p = np.random.default_rng(0).random(40) ** 2
    np.testing.assert_allclose(benjamini_hochberg(p), false_discovery_control(p))


def test_the_best_of_noise_rarely_survives_and_an_effect_always() -> None:
    rng = np.random.default_rng(1)
    false = 0
    for _ in range(200):
        scores = rng.standard_normal((12, 40))
        false += bool((max_statistic(scores[:, 0], scores[:, 1:]) <= 0.05).any())
    assert false / 200 < 0.1
    scores[3, 0] = 20.0
    result = max_statistic(scores[:, 0], scores[:, 1:])
    assert result[3] == pytest.approx(1 / 40) and (np.delete(result, 3) > 1 / 40).all()


def test_how_low_chance_falls_does_not_hide_what_is_beyond_it() -> None:
    """R^2 of two tests, both far beyond their shuffles; of one of them a shuffle fell to -60."""
    shuffled = np.stack([np.append(-60.0, -np.linspace(2, 4, 18)), -np.linspace(1, 3, 19)[::-1]])
    result = max_statistic(np.array([0.99, 0.99]), shuffled)
    np.testing.assert_allclose(result, [1 / 20, 1 / 20])
    chance = max_statistic(np.array([-2.0, -2.0]), shuffled)
    assert (chance > 0.05).all()


def test_scores_that_differ_by_rounding_are_equal() -> None:
    """The first test's shuffles all equal its score up to the last digit, the second's a single one."""
    shuffled = np.array([[0.3, 0.3, 0.3, 0.3], [0.1, 0.2, 0.7, 0.15]])
    exact = max_statistic(np.array([0.3, 0.7]), shuffled)
    np.testing.assert_array_equal(exact, [1, 2 / 5])
    up = np.nextafter(np.array([0.3, 0.7]), 1)
    np.testing.assert_array_equal(max_statistic(up, shuffled), exact)
    np.testing.assert_array_equal(max_statistic(up[:1], shuffled[:1]), [1])

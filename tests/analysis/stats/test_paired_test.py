"""Paired differences: t and bootstrap intervals compared with scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from marlnb.analysis.stats.paired_test import paired_test, paired_tests

SAMPLES = {
    "normal": np.random.default_rng(0).normal(0.3, 1.0, 200),
    "skewed": np.random.default_rng(1).exponential(size=25),
    "seldom": (np.random.default_rng(2).random(60) < 0.1).astype(float),
    "two": np.array([0.0, 1.0]),
    "more draws than a batch": np.random.default_rng(3).gamma(0.5, size=1000),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_bootstrap_is_scipys(name: str) -> None:
    result = SAMPLES[name]
    theirs = stats.bootstrap((result,), np.mean, n_resamples=9999, batch=512, rng=np.random.default_rng(7))
    mine = paired_test(result, "bootstrap", seed=7)
    np.testing.assert_allclose((mine.low, mine.high), theirs.confidence_interval, rtol=1e-12)
    assert mine.low <= result.mean() <= mine.high
    test = stats.ttest_1samp(result, 0.0)
    assert mine.p_value == pytest.approx(test.pvalue) and mine.detectable == paired_test(result).detectable


@pytest.mark.parametrize("name", SAMPLES)
def test_the_default_is_the_t_interval(name: str) -> None:
    result = SAMPLES[name]
    interval = stats.ttest_1samp(result, 0.0).confidence_interval()
    mine = paired_test(result)
    np.testing.assert_allclose((mine.low, mine.high), (interval.low, interval.high), rtol=1e-9)


def test_several_samples_at_once_are_tested_as_each_alone() -> None:
    samples = [np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.0, 5.0])]
    results = paired_tests(samples)
    for result, sample in zip(results, samples):
        assert result.__dict__ == pytest.approx(paired_test(sample).__dict__)
    # the standard deviation is 1; with two degrees of freedom t_0.975 = 4.3027 and t_0.8 = 1.0607
    assert results[0].detectable == pytest.approx((4.3027 + 1.0607) / 3**0.5, rel=1e-4)


def test_what_has_no_spread_or_no_pair_is_the_same_either_way() -> None:
    for intervals in ("t", "bootstrap"):
        still = paired_test(np.full(9, 0.25), intervals)  # type: ignore[arg-type]
        assert (still.low, still.high, still.p_value) == (0.25, 0.25, 0.0)
        for n in (3, 7, 20):  # the standard deviation of n times 0.1 is 1e-17
            rounded = paired_test(np.full(n, 0.1), intervals)  # type: ignore[arg-type]
            assert rounded.low == rounded.high == rounded.mean == pytest.approx(0.1)
        lone = paired_test(np.array([1.0, np.nan]), intervals)  # type: ignore[arg-type]
        assert (lone.n, lone.low, lone.high) == (1, -np.inf, np.inf)

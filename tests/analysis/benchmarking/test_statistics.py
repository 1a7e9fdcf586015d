"""Statistics of few runs, against rliable, scipy and numbers by hand."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest
from scipy.stats import trim_mean

from marlnb.analysis.benchmarking import statistics
from marlnb.errors import AnalysisError, ShapeError

GENERATOR = np.random.default_rng(7)
SCORES = {
    "a": GENERATOR.normal([0.2, 0.5, 0.9], 0.2, (6, 3)),
    "b": GENERATOR.normal([0.4, 0.4, 1.1], 0.3, (5, 3)),
}


@pytest.fixture(scope="module")
def rliable() -> Any:
    """rliable.library and .metrics. Only arch.bootstrap is needed; arch's own __init__ fails with pandas 3."""
    if "arch" not in sys.modules:
        spec = importlib.util.find_spec("arch")
        assert spec is not None and spec.submodule_search_locations is not None
        package = types.ModuleType("arch")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["arch"] = package
    import rliable.library
    import rliable.metrics

    return rliable


def test_aggregates_are_those_of_rliable(rliable: Any) -> None:
    metrics = rliable.metrics
    theirs = {
        "IQM": metrics.aggregate_iqm,
        "median": metrics.aggregate_median,
        "mean": metrics.aggregate_mean,
        "optimality gap": metrics.aggregate_optimality_gap,
    }
    result = statistics.aggregate(SCORES, n_bootstrap=10)
    assert result.keys() == theirs.keys()
    for name, function in theirs.items():
        for algorithm, matrix in SCORES.items():
            assert result[name][algorithm].value == pytest.approx(function(matrix), abs=1e-12)


def test_intervals_are_those_of_rliable(rliable: Any) -> None:
    """Two bootstraps of 5,000 samples each differ in their percentiles by hundredths."""
    result = statistics.aggregate(SCORES, n_bootstrap=5000)
    functions = list(statistics.AGGREGATES.values())
    np.random.seed(3)  # rliable draws from the global generator
    _, theirs = rliable.library.get_interval_estimates(
        SCORES, lambda s: np.array([float(function(s)) for function in functions]), reps=5000
    )
    for algorithm in SCORES:
        mine = np.array([[result[name][algorithm].low, result[name][algorithm].high] for name in result]).T
        np.testing.assert_allclose(mine, theirs[algorithm], atol=0.03)


def test_profiles_are_those_of_rliable(rliable: Any) -> None:
    thresholds = np.linspace(0, 1.2, 7)
    result = statistics.performance_profile(SCORES, thresholds, n_bootstrap=3000)
    np.random.seed(4)
    values, intervals = rliable.library.create_performance_profile(SCORES, thresholds, reps=3000)
    for algorithm in SCORES:
        np.testing.assert_allclose(result[algorithm].value, values[algorithm])
        # shares of 15 or 18 runs: a percentile may fall on the neighbouring step
        np.testing.assert_allclose(result[algorithm].low, intervals[algorithm][0], atol=0.034)
        np.testing.assert_allclose(result[algorithm].high, intervals[algorithm][1], atol=0.034)


def test_probability_of_improvement_is_that_of_rliable(rliable: Any) -> None:
    result = statistics.probability_of_improvement(SCORES, n_bootstrap=4000)
    function = rliable.metrics.probability_of_improvement
    np.random.seed(5)
    values, intervals = rliable.library.get_interval_estimates(
        {"a,b": [SCORES["a"], SCORES["b"]]}, lambda x, y: np.array([function(x, y)]), reps=1000
    )
    assert result["a", "b"].value == pytest.approx(float(values["a,b"][0]))
    assert result["a", "b"].value + result["b", "a"].value == pytest.approx(1)
    np.testing.assert_allclose([result["a", "b"].low, result["a", "b"].high], intervals["a,b"][:, 0], atol=0.03)


def test_by_hand() -> None:
    scores = {"x": [[0.0, 2.0], [4.0, 6.0]], "y": [[1.0, 2.0], [1.0, 2.0]]}
    result = statistics.aggregate(scores, n_bootstrap=50)
    assert result["IQM"]["x"].value == 3.0  # of 0, 2, 4, 6 the middle two
    assert result["median"]["x"].value == 3.0  # of the tasks' means 2 and 4
    assert result["optimality gap"]["x"].value == 0.25  # 1 - (0 + 1 + 1 + 1) / 4
    assert result["mean"]["y"] == statistics.Estimate(1.5, 1.5, 1.5)  # equal runs leave no doubt
    better = statistics.probability_of_improvement(scores, n_bootstrap=50)
    assert better["x", "y"].value == pytest.approx((0.5 + 0.75) / 2)  # one of two; a tie and one
    profile = statistics.performance_profile(scores, [-1.0, 0.0, 4.0, 6.0], n_bootstrap=50)
    assert profile["x"].value.tolist() == [1.0, 0.75, 0.25, 0.0]  # above, not at


def test_one_run_has_no_interval() -> None:
    scores = {"x": [[0.5, 0.4]], "y": [[0.501, 0.1], [0.502, 0.2]]}
    mean = statistics.aggregate(scores, n_bootstrap=10)["mean"]
    assert mean["x"].value == 0.45 and np.isnan([mean["x"].low, mean["x"].high]).all() and np.isfinite(mean["y"].low)
    better = statistics.probability_of_improvement(scores, n_bootstrap=10)["x", "y"]
    assert better.value == 0.5 and np.isnan([better.low, better.high]).all()
    band = statistics.curve_band([[[1.0, 2.0]]], n_bootstrap=10)
    assert band.value.tolist() == [1, 2] and np.isnan([band.low, band.high]).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (5, 2), (7, 3)])
def test_iqm_is_scipys_trimmed_mean(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(1).normal(size=(4, *shape))
    np.testing.assert_allclose(statistics.iqm(values), [trim_mean(one, 0.25, axis=None) for one in values])


def test_resampling_keeps_tasks_apart() -> None:
    matrix = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    drawn = np.concatenate(list(statistics.resamples(matrix, 4000, np.random.default_rng(0))))
    assert drawn.shape == (4000, 3, 2)
    assert set(np.unique(drawn[..., 0])) == {0, 1, 2} and set(np.unique(drawn[..., 1])) == {10, 11, 12}
    # a sample mean of 3 of {0, 1, 2} has the variance (2/3)/3; tasks are drawn apart, so they do not vary together
    means = drawn.mean(1)
    assert np.var(means[:, 0]) == pytest.approx(2 / 9, rel=0.08)
    assert abs(np.corrcoef(means.T)[0, 1]) < 0.05


def test_a_curve_is_the_iqm_at_each_point() -> None:
    curves = np.stack([SCORES["a"], SCORES["a"] + 1], axis=-1)
    band = statistics.curve_band(curves, n_bootstrap=3000)
    value = float(trim_mean(SCORES["a"], 0.25, axis=None))
    np.testing.assert_allclose(band.value, [value, value + 1])
    np.testing.assert_allclose(band.high - band.low, (band.high - band.low)[0])
    alone = statistics.aggregate({"a": SCORES["a"]}, n_bootstrap=3000)["IQM"]["a"]
    np.testing.assert_allclose([band.low[0], band.high[0]], [alone.low, alone.high], atol=0.02)


def test_results_do_not_depend_on_other_algorithms() -> None:
    both = statistics.aggregate(SCORES, n_bootstrap=200, seed=1)
    alone = statistics.aggregate({"b": SCORES["b"]}, n_bootstrap=200, seed=1)
    assert both["IQM"]["b"] == alone["IQM"]["b"]
    assert both["IQM"]["b"] != statistics.aggregate(SCORES, n_bootstrap=200, seed=2)["IQM"]["b"]


def test_a_scale_from_low_to_high() -> None:
    scaled = statistics.normalise([[-30.0, 5.0], [-20.0, 15.0]], [-40.0, 5.0], [-20.0, 10.0], ["a", "b"])
    np.testing.assert_allclose(scaled, [[0.5, 0.0], [1.0, 2.0]])
    with pytest.raises(AnalysisError, match="b: the upper level of a scale must be above the lower; got 5, 5"):
        statistics.normalise([[0.0, 0.0]], [0.0, 5.0], [1.0, 5.0], ["a", "b"])


def test_invalid_scores_are_rejected() -> None:
    with pytest.raises(ShapeError, match=r"scores of 'a' must be \[run, task\]"):
        statistics.aggregate({"a": [1.0, 2.0]})
    with pytest.raises(AnalysisError, match="1 of 2 are not finite"):
        statistics.aggregate({"a": [[1.0, np.nan]]})
    with pytest.raises(AnalysisError, match="n_bootstrap must be 2 or more"):
        statistics.aggregate({"a": [[1.0]]}, n_bootstrap=1)
    with pytest.raises(ShapeError, match="1 tasks, those of 'b' have 2"):
        statistics.probability_of_improvement({"a": [[1.0]], "b": [[1.0, 2.0]]})

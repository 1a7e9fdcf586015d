"""Matrices of scores: which runs make them, on which scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marlnb.analysis.benchmarking.comparison import compare_runs, task_curves, tasks_with
from marlnb.analysis.benchmarking.marl_eval import EvaluatedRun
from marlnb.errors import AnalysisError


def measured(task: str, algorithm: str, seed: int, *means: float) -> EvaluatedRun:
    """Evaluated at 100, 200, ... frames, two episodes each, one above and one below the mean."""
    return EvaluatedRun(
        task=task,
        algorithm=algorithm,
        seed=seed,
        frames=tuple(100 * (k + 1) for k in range(len(means))),
        seconds=(None,) * len(means),
        metrics={"return": tuple((mean - 1, mean + 1) for mean in means)},
        absolute={"return": (means[-1] + 4, means[-1] + 6)},
    )


RUNS = [
    measured("e/one", "x", 0, -30, -10),
    measured("e/one", "x", 1, -40, -20),
    measured("e/two", "x", 0, 0, 5),
    measured("e/two", "x", 1, 0, 10),
    measured("e/one", "y", 0, -40, -30),
    measured("e/two", "y", 0, 10, 5),
]
REFERENCES = {"e/one": {"random": -40.0, "no-op": -30.0, "oracle": -20.0}, "e/two": {"random": 0.0}}


def test_scores_by_hand() -> None:
    """0 is random; 1 the highest other level, or the best run where there is none."""
    result = compare_runs(RUNS, references=REFERENCES)
    assert result.tasks == ("e/one", "e/two") and result.seeds == {"x": (0, 1), "y": (0,)} and not result.excluded
    np.testing.assert_allclose(result.scores["x"], [[1.5, 0.5], [1.0, 1.0]])
    np.testing.assert_allclose(result.scores["y"], [[0.5, 0.5]])
    assert str(result.scales["e/one"]) == "0 = random (-40), 1 = oracle (-20)"
    assert result.describe_scale().splitlines()[1] == "e/two: 0 = random (0), 1 = best run (10)"


def test_few_runs_are_warned_of() -> None:
    """One run has no interval, and those of ten are about as wide as they should be."""
    runs = [measured("e/one", "x", seed, -40, -20 - seed) for seed in range(10)]
    warnings = [compare_runs(runs[:n], references=REFERENCES).warnings for n in (1, 3, 10)]
    (warning,) = warnings[1]
    assert warnings == [(), (warning,), ()] and warning.startswith("only 3 runs of each task: 95% intervals are too n")
    assert warning in compare_runs(runs[:3], references=REFERENCES)._repr_html_()


def test_best_and_absolute_scores() -> None:
    best = compare_runs(RUNS, references=REFERENCES, which="best")
    np.testing.assert_allclose(best.scores["y"], [[0.5, 1.0]])
    absolute = compare_runs(RUNS, references=REFERENCES, which="absolute")
    np.testing.assert_allclose(absolute.scores["y"], [[0.75, 10 / 15]])


def test_from_the_worst_run_to_the_best() -> None:
    result = compare_runs(RUNS, scale="min-max")
    np.testing.assert_allclose(result.scores["x"], [[1.0, 0.0], [0.5, 1.0]])
    assert result.scales["e/one"].low_is == "worst run"
    with pytest.raises(AnalysisError, match=r"e/one: no reference level of a random policy.*min-max"):
        compare_runs(RUNS)


def test_if_no_run_beats_random_it_is_the_upper_level() -> None:
    result = compare_runs(RUNS, references={"e/one": {"random": 0.0}, "e/two": {"random": 0.0}})
    assert str(result.scales["e/one"]) == "0 = worst run (-30), 1 = random (0)"
    np.testing.assert_allclose(result.scores["x"][:, 0], [2 / 3, 1 / 3])


def test_a_task_on_which_no_run_differs_from_random_is_excluded() -> None:
    zero = [measured("e/zero", name, seed, 0, 0) for name, seed in (("x", 0), ("x", 1), ("y", 0))]
    result = compare_runs([*RUNS, *zero], references={**REFERENCES, "e/zero": {"random": 0.0}})
    assert result.tasks == tuple(result.scales) == ("e/one", "e/two")
    assert result.excluded == ("e/zero: no scale, since random (0) is not above worst run (0)",)
    np.testing.assert_allclose(result.scores["y"], [[0.5, 0.5]])
    with pytest.raises(AnalysisError, match="no task can be compared; e/zero: no scale, since best run"):
        compare_runs(zero, scale="min-max")


def test_a_task_without_the_metric_is_excluded() -> None:
    prey = [replace(measured("e/tag", name, 0, 1, 2), metrics={"prey_return": ((1.0,), (2.0,))}) for name in "xy"]
    result = compare_runs([*RUNS, *prey], references=REFERENCES)
    assert result.tasks == ("e/one", "e/two") and result.excluded == (
        "e/tag, x, seed 0: no return; it has prey_return",
    )
    assert tasks_with([*RUNS, *prey], "prey_return")[0] == ["e/tag"]
    with pytest.raises(AnalysisError, match=r"^e/one, x, seed 0: no metric 'prey'. Valid: return"):
        compare_runs([*RUNS, *prey], metric="prey")


def test_an_excluded_task_decides_no_seeds() -> None:
    zero = [measured("e/zero", name, seed, 0, 0) for name, seed in (("x", 0), ("y", 7))]
    result = compare_runs([*RUNS, *zero], references={**REFERENCES, "e/zero": {"random": 0.0}})
    assert result.seeds == {"x": (0, 1), "y": (0,)}
    assert result.excluded == ("e/zero: no scale, since random (0) is not above worst run (0)",)
    extra = [*RUNS, measured("e/one", "y", 3, 0, 0)]  # counts for the scale of its task
    result = compare_runs(extra, scale="min-max")
    assert result.scales["e/one"].high == 0 and result.excluded == ("y, seed 3: not of every task",)


def test_curves_are_at_shares_of_the_frames_from_the_first_evaluation_of_all() -> None:
    result = compare_runs(RUNS, references=REFERENCES)
    curve = result.curves["x"][0, 0]  # from -30 at half its frames to -10 at all of them
    assert result.curves["x"].shape == (2, 2, 50) and result.shares[0] == 0.5
    np.testing.assert_allclose(curve[[0, -1]], [0.5, 1.5])
    np.testing.assert_allclose(np.interp(0.75, result.shares, curve), 1.0)
    often = measured("e/one", "z", 0, -40, -30, -20, -10)  # first evaluated at a quarter of its frames
    assert compare_runs([RUNS[0], often], references=REFERENCES).shares[0] == 0.5
    assert compare_runs([often], references=REFERENCES).shares[0] == 0.25


def test_a_single_evaluation_has_a_single_point() -> None:
    result = compare_runs([measured("e/one", "x", 0, -30)], references=REFERENCES)
    assert result.shares.tolist() == [1.0] and result.curves["x"].tolist() == [[[0.5]]]


def test_what_has_no_counterpart_is_excluded_with_a_reason() -> None:
    extra = [*RUNS, measured("e/three", "x", 0, 1), measured("e/one", "x", 7, 1)]
    result = compare_runs(extra, references=REFERENCES)
    assert result.tasks == ("e/one", "e/two") and result.seeds["x"] == (0, 1)
    assert result.excluded == ("e/three: no runs of y", "x, seed 7: not of every task")
    with pytest.raises(AnalysisError, match="no task has runs of every algorithm; available: x: e/one; y: e/two"):
        compare_runs([RUNS[0], RUNS[5]])
    with pytest.raises(AnalysisError, match="x: no seed has runs of all of e/one, e/two"):
        compare_runs([RUNS[0], RUNS[3]], references=REFERENCES)
    with pytest.raises(AnalysisError, match="two runs of"):
        compare_runs([RUNS[0], RUNS[0]])


def test_curves_of_a_task_are_at_frames_that_all_seeds_have() -> None:
    longer = [RUNS[0], measured("e/one", "x", 1, -40, -20, -5)]
    frames, curves = task_curves(longer, "e/one")["x"]
    assert frames.tolist() == [100, 200]
    np.testing.assert_allclose(curves, [[-30, -10], [-40, -20]])
    with pytest.raises(AnalysisError, match="did you mean 'e/one'"):
        task_curves(longer, "e/onee")

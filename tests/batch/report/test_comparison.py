"""A batch compared: over runs whose returns are written by hand, so that every number is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import Job, JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.report.comparison import NOTEBOOK, compare_batch, labels
from marlnb.batch.report.comparison_tables import bands, duration_table, estimates, job_table, linked, score_table
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run

ROOT = Path(__file__).parents[3]


def batch_of(folder: Path, axes: Mapping[str, Sequence[Any]]) -> Batch:
    cells = [nbformat.v4.new_code_cell("run = ''", metadata={"tags": ["parameters"]})]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "any.ipynb")
    sweep = Sweep({name: tuple(values) for name, values in axes.items()}, {})
    return Batch.create(folder / "batch", folder / "any.ipynb", sweep, Profile())


def train(
    folder: Path,
    returns: Sequence[float | None],
    *,
    state: str = "complete",
    step: int = 100,
    env: str = "simple_spread",
) -> Run:
    """A training with one iteration a return, of `step` frames each; None: no episode ended in it."""
    experiment = Experiment.compose(f"env=mpe/{env}", f"frames={step * len(returns)}")
    run = Run.create(folder, experiment)
    for k, value in enumerate(returns, 1):
        run.append_metrics({"iteration": k, "frames": k * step, "returns": {"a": value, "b": value}})
    run.write_status(state, frames=step * len(returns))  # type: ignore[arg-type]
    return run


def end(job: Job, state: str = "complete", minutes: float = 1.0, **facts: Any) -> None:
    job.write_status(JobStatus(state=state, seconds=60 * minutes, attempt=1, **facts))  # type: ignore[arg-type]


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    """mappo's seeds score 1, 2, 6, ippo's 10 and 20; its third failed before training, after 3 minutes."""
    made = batch_of(tmp_path, {"algorithm": ["mappo", "ippo"], "seed": [0, 1, 2]})
    for job, last in zip(made.jobs(), (1.0, 2.0, 6.0, 10.0, 20.0)):
        train(job.folder, [*[0.0] * 9, last])
        end(job, minutes=2.0)
    end(made.jobs()[5], "failed", 3.0, reason="cell 1: ValueError: no")
    return made


def test_settings_are_compared_over_what_repeats(batch: Batch) -> None:
    comparison = compare_batch(batch)
    assert (comparison.axes, comparison.repeats, comparison.measure, comparison.tasks) == (
        ("algorithm",), "seed", "training", ["mpe/simple_spread"],
    )  # fmt: skip
    groups = comparison.by("algorithm", "mpe/simple_spread")
    assert {name: [result.score for result in results] for name, results in groups.items()} == {
        "mappo": [1, 2, 6], "ippo": [10, 20],
    }  # fmt: skip
    assert groups == comparison.settings("mpe/simple_spread")
    assert comparison.excluded == {"algorithm=ippo,seed=2": "failed, and it has no run: cell 1: ValueError: no"}
    assert repr(comparison) == (
        "<BatchComparison of algorithm over seed on mpe/simple_spread, by training returns: 5 results compared; 1 "
        "excluded, wholly or in part>"
    )
    job = "algorithm=mappo,seed=0"
    assert repr(groups["mappo"][0]) == (f"<TrainingResult {job}: mpe/simple_spread, complete, 1,000 frames, score 1>")
    assert repr(batch) == f"<Batch {batch.path}: any.ipynb, 6 jobs: 5 complete, 1 failed>"
    html = batch._repr_html_()
    assert f"<td>{job}</td>" in html and "&lt;Batch" not in html and "6 jobs: 5 complete, 1 failed</b>" in html
    with pytest.raises(BatchError, match=r"no compared axis 'seed' of the batch. Valid: algorithm"):
        comparison.by("seed", "mpe/simple_spread")


def test_estimates_and_curves_are_interquartile_means_with_intervals(batch: Batch) -> None:
    groups = compare_batch(batch).by("algorithm", "mpe/simple_spread")
    by_setting = estimates(groups, lambda result: result.score)
    # of fewer than four runs no quarter can be cut off: the mean; every resample lies between the runs
    assert by_setting["mappo"].value == pytest.approx(3.0) and by_setting["ippo"].value == pytest.approx(15.0)
    assert (by_setting["mappo"].low, by_setting["mappo"].high) == (1.0, 6.0)
    frames, band = bands(groups)["mappo"]
    assert list(frames) == list(range(100, 1001, 100)) and list(band.value) == pytest.approx([0.0] * 9 + [3.0])
    scores = score_table(groups).set_index("setting")
    assert list(scores.loc["ippo", ["runs", "frames", "minutes"]]) == [2, 1000, 2]


def test_every_job_is_in_the_table_and_is_linked_to_its_page(batch: Batch, tmp_path: Path) -> None:
    table = job_table(batch, compare_batch(batch))
    assert list(table.columns[:4]) == ["job", "algorithm", "seed", "state"]
    assert list(table["score"][:5]) == [1, 2, 6, 10, 20] and math.isnan(table["score"][5])
    assert list(table["minutes"]) == [2, 2, 2, 2, 2, 3] and list(table["state"][4:]) == ["complete", "failed"]
    (batch.jobs()[0].folder / "notebook.html").touch()
    page = linked(table, batch, batch.path / "report")
    assert '<a href="../jobs/algorithm%3Dmappo%2Cseed%3D0/notebook.html">' in page and page.count("<a ") == 1
    durations = duration_table(batch, ["algorithm"]).set_index("setting")
    assert list(durations.loc["ippo"]) == [3, 2, 2, 2]  # jobs, complete, median, longest


def test_a_single_run_has_no_interval_and_a_sweep_need_not_repeat(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"lr": [1e-4, 0.2]})
    train(batch.jobs()[0].folder, [5.0] * 4)
    end(batch.jobs()[0])
    comparison = compare_batch(batch)
    assert (comparison.axes, comparison.repeats) == (("lr",), None)
    with pytest.raises(BatchError, match=r"no axis 'rl' of the batch.* Valid: lr"):
        compare_batch(batch, repeats="rl")
    groups = comparison.by("lr", "mpe/simple_spread")
    assert list(groups) == ["0.0001"] and math.isnan(estimates(groups, lambda r: r.score)["0.0001"].low)
    assert np.isnan(bands(groups)["0.0001"][1].low).all()
    assert ">0.0001</td>" in linked(job_table(batch, comparison), batch, tmp_path)  # not rounded
    assert comparison.excluded == {"lr=0.2": "waiting, and it has no run"}


def test_one_job_without_anything_swept(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {})
    train(batch.jobs()[0].folder, [7.0])
    end(batch.jobs()[0])
    comparison = compare_batch(batch)
    assert comparison.axes == () and list(comparison.settings("mpe/simple_spread")) == ["all runs"]
    assert list(duration_table(batch, [])["setting"]) == ["all runs"]


def test_a_batch_that_trained_nothing_compares_states_and_durations(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"size": [1, 2]})
    for job in batch.jobs():
        end(job)
    comparison = compare_batch(batch)
    assert comparison.tasks == [] and comparison.excluded["size=1"] == "complete, and it has no run"
    assert list(job_table(batch, comparison)["frames"]) == [0, 0]


def test_a_run_counts_when_its_training_is_complete_whatever_became_of_its_notebook(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"seed": [0, 1, 2]})
    kept, broken, going = batch.jobs()
    train(kept.folder, [1.0, 3.0])
    end(kept)
    train(broken.folder, [1.0, -9.0])
    end(broken, "failed", reason="cell 5: AssertionError")
    train(going.folder, [1.0, 100.0, 100.0], state="stopped")
    end(going, "interrupted", reason="SIGUSR1")
    comparison = compare_batch(batch)
    assert [result.score for result in comparison.compared] == [3.0, -9.0]
    assert comparison.excluded == {"seed=2": "its training is stopped at 300 of 300 frames (SIGUSR1)"}
    assert list(job_table(batch, comparison)["score"]) == [3.0, -9.0, 100.0]


def test_evaluations_are_compared_where_every_training_has_some(batch: Batch) -> None:
    folders = [job.folder for job in batch.jobs()[:5]]
    for k, folder in enumerate(folders[:4]):
        returns = {"a": [k, k + 1], "b": [k, k + 1]}
        Run.open(folder).append_evaluation({"iteration": 10, "frames": 1000, "returns": returns})
    assert compare_batch(batch).measure == "training"
    lacking = compare_batch(batch, measure="evaluation")
    assert lacking.excluded["algorithm=ippo,seed=1"] == "its training has no evaluation to compare"
    Run.open(folders[4]).append_evaluation({"iteration": 10, "frames": 1000, "returns": {"a": [4, 5], "b": [4, 5]}})
    comparison = compare_batch(batch)
    assert comparison.measure == "evaluation" and [r.score for r in comparison.compared] == [0.5, 1.5, 2.5, 3.5, 4.5]
    with pytest.raises(BatchError, match=r"no measure 'evaluations'; did you mean 'evaluation'"):
        compare_batch(batch, measure="evaluations")  # type: ignore[arg-type]


def test_curves_of_unlike_lengths_are_averaged_as_far_as_all_have_come(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"seed": [0, 1]})
    slow, fast = batch.jobs()
    train(slow.folder, [0.0, 2.0, 4.0, 6.0], step=100)
    train(fast.folder, [None, 10.0], step=150)  # nothing ended in its first iteration
    groups = compare_batch(batch).settings("mpe/simple_spread")
    frames, band = bands(groups)["all runs"]
    assert list(frames) == [300.0] and list(band.value) == [7.0]  # 4 and 10


def test_other_tasks_and_trainings_below_a_job_are_kept_apart(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"env": ["simple_spread", "simple_tag"]})
    one, two = batch.jobs()
    train(one.folder, [1.0])
    train(two.folder / "first", [2.0], env="simple_tag")
    train(two.folder / "runs" / "second", [3.0], env="simple_tag")
    comparison = compare_batch(batch)
    tasks = ["mpe/simple_spread", "mpe/simple_tag, first", "mpe/simple_tag, runs/second"]
    assert comparison.tasks == tasks
    assert [list(comparison.by("env", task)) for task in tasks] == [["simple_spread"], ["simple_tag"], ["simple_tag"]]
    table = job_table(batch, comparison)
    assert table["frames"][1] == 200 and math.isnan(table["score"][1])


def test_groups_that_are_rewarded_differently_are_compared_one_by_one(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"seed": [0, 1]})
    for k, job in enumerate(batch.jobs()):
        run = train(job.folder, [0.0], env="simple_tag")
        run.cut_metrics(0)
        run.append_metrics({"iteration": 1, "frames": 100, "returns": {"adversary": 30.0 + k, "agent": -40.0 - k}})
        end(job)
    comparison = compare_batch(batch)
    assert comparison.tasks == ["mpe/simple_tag, adversary", "mpe/simple_tag, agent"]
    groups = comparison.settings("mpe/simple_tag, agent")
    assert [(result.group, result.score) for result in groups["all runs"]] == [("agent", -40.0), ("agent", -41.0)]
    table = job_table(batch, comparison)
    assert list(table["score of adversary"]) == [30.0, 31.0] and "score" not in table
    assert list(table["frames"]) == [100, 100] and "-40.00" in linked(table, batch, tmp_path)


def test_a_run_whose_groups_happen_to_earn_the_same_counts_in_both(tmp_path: Path) -> None:
    """Hunters and prey of a seed without a catch both earn 0; its score counts as those of the other seeds do."""
    batch = batch_of(tmp_path, {"seed": [0, 1, 2, 3]})
    for job, catches in zip(batch.jobs(), (3.0, 2.0, 0.0, 1.0)):
        run = train(job.folder, [0.0], env="simple_tag")
        run.append_evaluation({"iteration": 1, "frames": 100, "returns": {"adversary": [catches], "agent": [-catches]}})
    comparison = compare_batch(batch)
    assert comparison.tasks == ["mpe/simple_tag, adversary", "mpe/simple_tag, agent"] and not comparison.excluded
    scores = score_table(comparison.settings("mpe/simple_tag, adversary")).iloc[0]
    assert (scores["runs"], scores["score"]) == (4, 1.5)  # the interquartile mean of 0, 1, 2, 3
    assert list(job_table(batch, comparison)["score of agent"]) == [-3, -2, 0, -1]


def test_any_value_has_a_label_of_its_own_and_any_name_a_column(tmp_path: Path) -> None:
    values = ("a'; echo $(whoami)", "x\ny", "", "_hidden", 0.5, "0.5", None, [64, 64], "a" * 60, "a" * 59 + "b")
    shown = list(labels({"value": values}).values())
    assert len(set(shown)) == len(values) and all(text and not text.startswith("_") for text in shown)
    assert shown[4:8] == ["0.5", '"0.5"', "null", "[64, 64]"] and max(map(len, shown)) <= 45
    assert list(labels({"lr": [0.1], "algorithm": ["mappo"]}).values()) == ["lr=0.1, algorithm=mappo"]
    batch = batch_of(tmp_path, {"state": ["<b>x</b>", "two"]})
    table = job_table(batch, compare_batch(batch))
    assert list(table["state"]) == ["waiting"] * 2 and list(table["parameter state"]) == ["<b>x</b>", "two"]
    assert "<b>" not in linked(table, batch, tmp_path)


def test_the_packaged_notebook_is_that_of_the_folder() -> None:
    assert (ROOT / "notebooks" / "compare.ipynb").resolve() == NOTEBOOK.resolve()
    assert json.loads(NOTEBOOK.read_text(encoding="utf-8"))["nbformat"] == 4

"""Plans: what becomes of each job, what it costs; nothing is written. Also cost, the arithmetic of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.cost import Cost, folder_bytes
from marlnb.batch.job.job import JOB_LOCK, CellError, JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.submission_plan import SubmissionPlan, make_plan
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.training.runs.lock import RunLock
from tests.batch.jobs import notebook

PROFILE = Profile(cores=2, time_limit="1:00:00")


def plan_of(tmp_path: Path, n_jobs: int = 6, then: Path | None = None, **choices: object) -> SubmissionPlan:
    source = tmp_path / "a.ipynb"
    sweep = Sweep({"n": tuple(range(n_jobs))}, {})
    batch = Batch.create(tmp_path / "batch", source, sweep, PROFILE, then=then, write=False)
    return make_plan(batch, source, then, **choices)  # type: ignore[arg-type]


@pytest.fixture
def mixed(tmp_path: Path) -> Batch:
    """Complete, failed, interrupted, stopped, running, new."""
    source = notebook(tmp_path / "a.ipynb", "1")
    batch = Batch.create(tmp_path / "batch", source, Sweep({"n": tuple(range(6))}, {}), PROFILE)
    error = CellError(3, "1 / 0", "ZeroDivisionError", "division by zero", "")
    for number, status in enumerate(
        [
            JobStatus("complete", seconds=60.0, attempt=1),
            JobStatus("failed", attempt=1, error=error),
            JobStatus("running", attempt=1),
            JobStatus("stopped", attempt=1),
            JobStatus("running", attempt=1, progress="training"),
        ]
    ):
        batch.job(f"n={number}").write_status(status)
    return batch


def test_what_becomes_of_each_job(tmp_path: Path, mixed: Batch) -> None:
    with RunLock(mixed.job("n=4").folder / JOB_LOCK):
        plan = plan_of(tmp_path)
        assert {planned.job.name: (planned.submits, planned.action) for planned in plan.jobs} == {
            "n=0": (False, "complete"),
            "n=1": (True, "failed before, run again: ZeroDivisionError in cell 3"),
            "n=2": (True, "interrupted before, continues"),
            "n=3": (True, "stopped before, continues"),
            "n=4": (False, "already running: training"),
            "n=5": (True, "new"),
        }
        assert [job.name for job in plan.submits] == ["n=1", "n=2", "n=3", "n=5"]
        left = plan_of(tmp_path, retry_failed=False)
        assert [job.name for job in left.submits] == ["n=2", "n=3", "n=5"]
        only = plan_of(tmp_path, only=["n=0", "n=1", "n=4"])
        assert [job.name for job in only.submits] == ["n=1"]
    with pytest.raises(BatchError, match=r"no job 'n=9' of .*"):
        plan_of(tmp_path, only=["n=9"])


def test_costs_are_those_of_finished_jobs(tmp_path: Path, mixed: Batch) -> None:
    (mixed.job("n=0").folder / "weights").write_bytes(b"x" * 1_000_000)
    plan = plan_of(tmp_path)
    assert (plan.cost.n_jobs, plan.cost.seconds, plan.cost.limit_s) == (5, 60.0, 3600)
    assert plan.cost.size_bytes == folder_bytes(mixed.job("n=0").folder)
    assert plan.cost.size_bytes is not None and 1_000_000 <= plan.cost.size_bytes < 1_100_000
    text = plan.describe()
    assert "submit   5: 1 complete; 1 failed before, run again; 2 interrupted before, continues" in text
    assert (
        "about 5 min 00 s of jobs, 10 min 00 s of cores (1 min 00 s each, measured on 1 finished job of this batch)"
        in text
    )
    assert "at most 5 h 00 min (1 h 00 min per attempt, each with 2 cores)" in text
    assert "about 5.0" in text and " MB (1.0" in text


def test_unknown_costs_are_called_unknown_unless_the_notebook_tells(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "1")
    plan = plan_of(tmp_path, 2)
    assert plan.cost.seconds is None and plan.cost.size_bytes is None and plan.cost.fits
    assert plan.describe().count("unknown: no job of this batch has finished yet") == 2
    data = json.loads(source.read_text())
    data["metadata"]["marlnb"] = {"minutes": 90, "megabytes": 20}
    source.write_text(json.dumps(data))
    plan = plan_of(tmp_path, 2)
    assert (plan.cost.seconds, plan.cost.size_bytes) == (5400.0, 20e6)
    assert (
        "about 3 h 00 min of jobs, 6 h 00 min of cores (1 h 30 min each, stated by a.ipynb for its default parameters"
        in plan.describe()
    )
    assert not (tmp_path / "batch").exists()


def test_storage_that_does_not_fit() -> None:
    cost = Cost(10, 1, 0, None, None, 2e9, "as given", 10_000_000_000)
    assert not cost.fits and replace(cost, n_jobs=5).fits
    assert cost.lines()[1] == "storage  about 20 GB (2 GB each, as given); 10 GB free (a quota may allow less)"


def test_long_plans_are_short(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", "1")
    lines = plan_of(tmp_path, 1000).describe().splitlines()
    assert len(lines) < 20 and "  … 991 more …" in lines and lines[-1].split() == ["n=999", "new"]
    assert len(plan_of(tmp_path, 12).describe().splitlines()) == 6 + 12


def test_the_report_follows_when_all_are_complete(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", "1")
    then = notebook(tmp_path / "then.ipynb", "2")
    source, sweep = tmp_path / "a.ipynb", Sweep({"n": (0, 1)}, {})

    def report_plan() -> tuple[bool, str]:
        report = plan_of(tmp_path, 2, then).report
        assert report is not None
        return report.submits, report.action

    assert report_plan() == (False, "runs when all jobs are complete")
    batch = Batch.create(tmp_path / "batch", source, sweep, PROFILE, then=then)
    for job in batch.jobs():
        job.write_status(JobStatus("complete"))
    assert report_plan() == (True, "starts: all jobs are complete")
    batch.report_job().write()
    batch.report_job().write_status(JobStatus("complete"))
    assert report_plan() == (False, "complete")
    notebook(then, "3")  # another report notebook: the report is made again
    assert report_plan() == (True, "starts: all jobs are complete")


def test_other_values_do_not_leave_out_jobs_that_run(tmp_path: Path, mixed: Batch) -> None:
    mixed.create_submission(mixed.jobs(), then=False)
    with RunLock(mixed.job("n=4").folder / JOB_LOCK):
        with pytest.raises(BatchError, match=r"^1 job of .* \(n=4 is one\).*give their values too, cancel .* --out"):
            plan_of(tmp_path, 2)
        assert not plan_of(tmp_path, 7).jobs[4].submits
    assert len(plan_of(tmp_path, 2).jobs) == 2


def test_jobs_of_an_earlier_sweep_are_named(tmp_path: Path, mixed: Batch) -> None:
    (note,) = plan_of(tmp_path, 2).notes
    assert note.startswith("jobs of an earlier sweep are in this folder (4, ") and "n=2" in note

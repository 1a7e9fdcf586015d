"""Submitting: begins what is missing and nothing else. An executor that notes what it is given stands for the real."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import nbformat
import pytest

from marlnb.batch.batch import SUBMIT_LOCK, Batch
from marlnb.batch.cost import Cost
from marlnb.batch.executor import EXECUTORS, Executor
from marlnb.batch.job.job import CellError, Job, JobInfo, JobStatus
from marlnb.batch.report.comparison import NOTEBOOK
from marlnb.batch.submit import plan_submission, submit, submit_plan
from marlnb.batch.sweep.grammar import values_of_python
from marlnb.errors import BatchError, ConfigError, UnknownNameError
from marlnb.training.runs.lock import RunLock
from tests.batch.jobs import notebook

N = {"n": range(3)}


class Noting(Executor):
    """Runs nothing: notes what it is given."""

    query_interval_s = 0.0
    grace_s = 0.5
    calls: ClassVar[list[tuple[list[str], bool]]] = []
    answers: ClassVar[dict[str, JobInfo]] = {}
    problems: ClassVar[list[str]] = []

    def check(self) -> None:
        if self.profile.cores > 4:
            raise BatchError("no node has that many cores")

    def preview(self, batch: Batch, jobs: Sequence[Job], *, then: bool) -> str:
        return "".join(f"{job.name}\n" for job in jobs)

    def submit(self, batch: Batch, jobs: Sequence[Job], *, then: bool, reason: str = "") -> str:
        batch.create_submission(jobs, then=then, reason=reason)
        self.calls.append(([job.name for job in jobs], then))
        assert all((job.folder / "job.json").is_file() for job in jobs)
        assert all(job.status().state in ("waiting", "complete") for job in jobs)
        return "noted"

    def query(self, batch: Batch) -> Mapping[str, JobInfo]:
        for problem in self.problems:
            raise BatchError(problem)
        return self.answers

    def cancel(self, batch: Batch, jobs: Sequence[Job]) -> None:
        self.calls.append((["cancel", *(job.name for job in jobs)], False))


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[list[str], bool]]]:
    """An executor `noting`, a profile of that name, a notebook `a.ipynb`; the working folder is the test's own."""
    EXECUTORS.names()
    monkeypatch.setitem(EXECUTORS._members, "noting", Noting)
    (tmp_path / "noting.yaml").write_text("executor: noting\ncores: 2\n", encoding="utf-8")
    monkeypatch.setenv("MARLNB_PROFILES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    notebook(tmp_path / "a.ipynb", "print(n)")
    Noting.calls.clear()
    Noting.answers.clear()
    Noting.problems.clear()
    yield Noting.calls


def test_the_same_call_completes_only_what_is_missing(noting: list[tuple[list[str], bool]], tmp_path: Path) -> None:
    batch = submit("a.ipynb", N, on="noting")
    assert batch.path == tmp_path / "runs" / "a-batch" and batch.profile.cores == 2
    assert noting.pop() == (["n=0", "n=1", "n=2"], False)
    Noting.answers.update({"n=0": JobInfo("ended"), "n=1": JobInfo("queued", "Priority"), "n=2": JobInfo("running")})
    batch.job("n=0").write_status(JobStatus("failed", reason="a cell failed", attempt=2, seconds=7.0))
    submit("a.ipynb", N)  # the profile is the batch's own
    assert noting.pop() == (["n=0"], False)
    again = batch.job("n=0").status()
    assert (again.state, again.attempt, again.seconds, again.error) == ("waiting", 2, 7.0, None)
    assert again.reason == "failed before, run again: a cell failed"
    Noting.answers.clear()
    for job in batch.jobs():
        job.write_status(JobStatus("complete"))
    submit("a.ipynb", N)
    assert noting == []
    submit("a.ipynb", {"n": range(5)})
    assert noting.pop() == (["n=3", "n=4"], False)
    assert batch.job("n=0").status().state == "complete"
    assert (tmp_path / "runs" / "a-batch" / "events.log").read_text().count("submitted") == 3


def test_a_refused_submission_leaves_the_jobs_as_they_were(
    noting: list[tuple[list[str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = submit("a.ipynb", N, on="noting")
    error = CellError(2, "1 / 0", "ZeroDivisionError", "division by zero", "traceback")
    batch.job("n=0").write_status(JobStatus("failed", reason="a cell failed", attempt=1, error=error))
    batch.job("n=1").write_status(JobStatus("stopped", reason="the file STOP", attempt=1))

    def refuse(*_: object, **__: object) -> str:
        assert batch.job("n=0").status().state == "waiting"
        raise BatchError("invalid partition specified")

    with monkeypatch.context() as patch:
        patch.setattr(Noting, "submit", refuse)
        with pytest.raises(BatchError, match="invalid partition"):
            submit("a.ipynb", N)
    failed, stopped = (batch.job(name).status() for name in ("n=0", "n=1"))
    assert (failed.state, failed.reason, failed.error) == ("failed", "a cell failed", error)
    assert (stopped.state, stopped.reason) == ("stopped", "the file STOP")


def test_a_batch_is_completed_by_its_folder(noting: list[tuple[list[str], bool]], tmp_path: Path) -> None:
    notebook(tmp_path / "r.ipynb", "1")
    cells = nbformat.read(tmp_path / "r.ipynb", 4)
    cells.cells[0].source = 'batch = ""'
    nbformat.write(cells, tmp_path / "r.ipynb")
    first = submit("a.ipynb", N, on="noting", out="there", then="r.ipynb")
    assert noting.pop() == (["n=0", "n=1", "n=2"], True)
    (first.job("n=1").folder / "STOP").touch()
    batch = submit(first.path, only=["n=1"], profile_overrides={"cores": 3})
    assert noting.pop() == (["n=1"], True)
    assert not (first.job("n=1").folder / "STOP").exists()
    assert Batch.open(first.path).profile == replace(batch.profile, cores=3) and batch.then == "r.ipynb"
    for job in batch.jobs():
        job.write_status(JobStatus("complete"))
    submit(first.path)
    assert noting.pop() == (["report"], False)
    with pytest.raises(ConfigError, match="is a batch, which has its notebook, parameters and folder"):
        submit(first.path, {"n": 1})


def test_a_notebook_that_was_mended_is_gone_on_with_when_asked(noting: list[tuple[list[str], bool]]) -> None:
    batch = submit("a.ipynb", N, on="noting")
    batch.job("n=0").write_status(JobStatus("complete"))
    notebook(Path("a.ipynb"), "print(n, 'mended')")
    with pytest.raises(BatchError, match="--update-notebook"):
        submit("a.ipynb", N)
    submit("a.ipynb", N, update_notebook=True)
    assert noting[-1] == (["n=1", "n=2"], False)
    assert "mended" in (batch.path / "source.ipynb").read_text()


def test_a_project_that_was_renamed_runs_where_it_is_now(
    noting: list[tuple[list[str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    monkeypatch.chdir(old)
    submit("../a.ipynb", N, on="noting")
    old.rename(new)
    monkeypatch.chdir(new)
    plan = plan_submission("../a.ipynb", values_of_python(N))
    assert f"the jobs run in {new}, since their working folder {old} does not exist any more" in plan.notes
    assert {Job.open(job.folder).cwd for job in submit_plan(plan).jobs()} == {new}


def test_a_relative_path_of_python_belongs_to_the_folder_of_the_submission(
    noting: list[tuple[list[str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = submit("a.ipynb", N, on="noting", profile_overrides={"python": ".venv/bin/python"})
    assert batch.profile.interpreter == str(tmp_path / ".venv" / "bin" / "python")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert submit(batch.path).profile == batch.profile
    for python in ("python3", "~/venv/bin/python"):
        assert submit(batch.path, profile_overrides={"python": python}).profile.python == python


def test_requests_that_cannot_be_met_begin_nothing(noting: list[tuple[list[str], bool]]) -> None:
    bare = nbformat.read("a.ipynb", 4)
    bare.metadata.clear()
    nbformat.write(bare, "bare.ipynb")
    requests: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        (("b.ipynb", N), {}, ConfigError, "the notebook b.ipynb does not exist"),
        (("bare.ipynb", N), {}, ConfigError, "bare.ipynb names no kernel; open it in JupyterLab, choose a kernel"),
        (("a.ipynb", N), {"then": "bare.ipynb"}, ConfigError, "bare.ipynb names no kernel"),
        (("a.ipynb", {"m": 1}), {}, ConfigError, "no parameter 'm' of a.ipynb"),
        (("a.ipynb", {"n": ["x"]}), {}, ConfigError, "parameter 'n' must be a whole number; got 'x'"),
        (("a.ipynb", N), {"on": "notng"}, BatchError, "did you mean 'noting'"),
        (("a.ipynb", N), {"profile_overrides": {"cors": 1}}, BatchError, "did you mean 'cores'"),
        (("a.ipynb", N), {"profile_overrides": {"executor": "nothing"}}, UnknownNameError, "no executor 'nothing'"),
        (("a.ipynb", N), {"profile_overrides": {"cores": 5}}, BatchError, "no node has that many cores"),
        (("a.ipynb", N), {"then": "a.ipynb"}, ConfigError, "no parameter 'batch' of a.ipynb"),
        (("a.ipynb", N), {"only": ["n=7"]}, BatchError, "no job 'n=7' of"),
    ]
    for arguments, choices, error, message in requests:
        with pytest.raises(error) as caught:
            submit(*arguments, **{"on": "noting", **choices})
        assert message in str(caught.value)
    assert noting == [] and not Path("runs").exists()


def test_a_full_disk_and_another_submitter_are_reported(noting: list[tuple[list[str], bool]]) -> None:
    plan, other = (plan_submission("a.ipynb", values_of_python(v), on="noting") for v in ({}, N))
    full = replace(plan, cost=Cost(1, 1, 0, None, None, 2e9, "as given", 10**9))
    with pytest.raises(BatchError, match=r"not enough disk space: storage  about 2 GB .* --force to start anyway"):
        submit_plan(full)
    assert not Path("runs").exists()
    batch = submit_plan(full, force=True)
    assert noting.pop() == (["only"], False)
    with pytest.raises(BatchError, match="after this plan was made"):
        submit_plan(other)
    with RunLock(batch.path / SUBMIT_LOCK), pytest.raises(BatchError, match="another process is submitting"):
        submit_plan(other)
    assert [job.name for job in Batch.open(batch.path).jobs()] == ["only"]  # the first submitter's
    assert noting == []


def test_nothing_is_submitted_while_it_is_not_known_what_is_queued(noting: list[tuple[list[str], bool]]) -> None:
    batch = submit("a.ipynb", N, on="noting")
    noting.clear()
    Noting.problems.append("Socket timed out")
    for values in (N, {"n": range(4)}):
        with pytest.raises(BatchError, match=r"the noting executor did not say .*: Socket timed out\n.* --force"):
            submit("a.ipynb", values)
    assert noting == [] and len(batch.submissions()) == 1
    assert any("Socket timed out" in note for note in plan_submission("a.ipynb", values_of_python(N)).notes)
    submit("a.ipynb", N, force=True)
    assert noting.pop() == (["n=0", "n=1", "n=2"], False)
    for job in batch.jobs():
        job.write_status(JobStatus("complete"))
    submit("a.ipynb", N)  # nothing to submit
    assert noting == []


def test_another_executor_takes_over_when_the_one_before_has_nothing_left(noting: list[tuple[list[str], bool]]) -> None:
    batch = submit("a.ipynb", N, on="noting")
    Noting.answers.update({"n=0": JobInfo("ended"), "n=1": JobInfo("queued", "Priority"), "n=2": JobInfo("unknown")})
    with pytest.raises(BatchError, match=r"the noting executor still has 1 job of .* \(n=1 is one\)"):
        plan_submission("a.ipynb", values_of_python(N), on="local")
    assert Batch.open(batch.path).profile.executor == "noting"
    Noting.answers["n=1"] = JobInfo("ended")
    plan = plan_submission("a.ipynb", values_of_python(N), on="local")
    assert plan.batch.profile.executor == "local" and [job.name for job in plan.submits] == ["n=0", "n=1", "n=2"]


def test_other_values_do_not_leave_out_jobs_that_wait(noting: list[tuple[list[str], bool]]) -> None:
    batch = submit("a.ipynb", N, on="noting")
    Noting.answers.update({"n=0": JobInfo("queued"), "n=1": JobInfo("queued"), "n=2": JobInfo("ended")})
    with pytest.raises(BatchError, match=r"2 jobs of .* still run or wait \(n=0 is one\)"):
        submit("a.ipynb", {"n": [7]})
    assert len(Batch.open(batch.path).jobs()) == 3 and len(noting) == 1
    submit("a.ipynb", {"n": [0, 1, 7]})
    assert noting[-1] == (["n=7"], False)


def test_the_comparison_that_comes_along_is_known_by_its_name(noting: list[tuple[list[str], bool]]) -> None:
    batch = submit("a.ipynb", N, on="noting", then="compare")
    assert noting.pop() == (["n=0", "n=1", "n=2"], True) and batch.then == "compare.ipynb"
    assert (batch.path / "then.ipynb").read_text() == NOTEBOOK.read_text()
    notebook(Path("compare"), "1")
    with pytest.raises(ConfigError, match="no parameter 'batch' of compare"):  # a file of that name is meant first
        submit("a.ipynb", N, then="compare")

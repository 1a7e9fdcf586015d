"""The queue of the JupyterLab extension: batches and their jobs, cancelled, run again and explained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.executors import slurm
from marlnb.batch.executors.slurm import SlurmExecutor
from marlnb.batch.job.job import JOB_LOCK, CellError, JobInfo, JobStatus
from marlnb.batch.overview import job_rows
from marlnb.batch.profile import Profile
from marlnb.batch.slurm.script import Part
from marlnb.batch.slurm.submission_record import Array, SubmissionRecord
from marlnb.batch.sweep.sweep import Sweep
from marlnb.lab.queue import Queue
from marlnb.lab.verbs import Session
from marlnb.training.runs.lock import RunLock, process_alive
from tests.batch.batches import Maker, notebook, supervisor, wait_until
from tests.batch.batches import make as make
from tests.lab.test_service import ask

FAILED = JobStatus(
    "failed", "cell 2: ValueError: no", 1, 2, 2, error=CellError(2, "raise ValueError('no')", "ValueError", "no", "tb")
)


def jobs_of(answer: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    (batch,) = (batch for batch in answer["batches"] if batch["name"] == name)
    return {job["name"]: job for job in batch["jobs"]}


def test_it_shows_what_the_command_shows(make: Maker, tmp_path: Path) -> None:
    batch = make("pass", n=range(3))
    batch.job("n=1").write_status(FAILED)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "batch.json").write_text("[1]")
    answer = ask(Session(), "queue", folders=[str(tmp_path)], fresh=True)["answer"]
    jobs = jobs_of(answer, "batch0")
    assert [job["state"] for job in jobs.values()] == [row.state for row in job_rows(batch)]
    assert jobs["n=1"]["reason"] == "cell 2: ValueError: no" and jobs["n=0"]["node"] == ""
    assert answer["batches"][0]["summary"] == "2 waiting, 1 failed" and answer["asked_s"] == {}
    assert any(str(tmp_path / "broken") in problem for problem in answer["problems"])
    missing = ask(Session(), "queue", folders=[str(tmp_path / "none")], fresh=True)["answer"]
    assert missing["batches"] == [] and "does not exist" in missing["problems"][0]


def test_a_job_says_why_it_failed_and_is_run_again_and_cancelled(make: Maker, tmp_path: Path) -> None:
    python = make.script("until [ -e STOP ]; do sleep 0.05; done; exit 130")
    batch, session = make("pass", n=range(2), python=python, time_limit="1:00:00"), Session()
    batch.job("n=1").write_status(FAILED)
    batch.job("n=1").log.write_text("before it failed\n")
    job = ask(session, "job", batch=str(batch.path), name="n=1")["answer"]
    assert "raise ValueError('no')" in job["failure"] and job["output"] == "before it failed"
    assert job["rerun_command"] == f"marlnb batch {batch.path} --only n=1" and job["job"]["notebook"] == ""
    assert "no job 'n=7' of" in ask(session, "job", batch=str(batch.path), name="n=7")["error"]
    assert "not a batch" in ask(session, "requeue", batch=str(tmp_path), jobs=[])["error"]

    assert ask(session, "requeue", batch=str(batch.path), jobs=["n=1"])["answer"] == "1 job submitted"
    folders = [str(tmp_path)]
    wait_until(
        lambda: jobs_of(ask(session, "queue", folders=folders)["answer"], "batch0")["n=1"]["state"] == "starting"
    )
    jobs = jobs_of(ask(session, "queue", folders=folders)["answer"], "batch0")
    assert jobs["n=1"]["id"].isdigit() and jobs["n=1"]["node"] and jobs["n=0"]["state"] == "waiting"
    again = ask(session, "requeue", batch=str(batch.path), jobs=["n=1"])["answer"]
    assert again == "nothing to submit: already running"
    assert ask(session, "cancel", batch=str(batch.path), jobs=["n=0", "n=1"])["answer"] == "2 jobs: will not start"
    wait_until(lambda: not process_alive(supervisor(batch)))
    assert batch.job("n=0").status().state == "stopped" and not batch.job("n=1").is_executing


def test_a_running_job_has_the_time_until_its_limit(make: Maker, tmp_path: Path) -> None:
    batch = make("pass", time_limit="1:00:00")
    job = batch.job("n=0")
    job.write_status(JobStatus("running", started=time.time() - 600, n_cells=4, cell=2, progress="half"))
    with RunLock(job.folder / JOB_LOCK):
        shown = jobs_of(ask(Session(), "queue", folders=[str(tmp_path)], fresh=True)["answer"], "batch0")["n=0"]
    assert shown["state"] == "running" and 2990 < shown["time_left_s"] <= 3000
    assert shown["progress"] == "cell 2 of 4, half" and shown["node"]
    job.write_status(JobStatus("running", started=time.time() - 600, ends=time.time() + 70, n_cells=4))
    with RunLock(job.folder / JOB_LOCK):
        shown = jobs_of(ask(Session(), "queue", folders=[str(tmp_path)], fresh=True)["answer"], "batch0")["n=0"]
    assert 60 < shown["time_left_s"] <= 70  # as the scheduler said


def test_a_scheduler_is_asked_once_per_interval_and_after_an_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = notebook(tmp_path / "a.ipynb", "pass")
    for name in "ab":
        Batch.create(tmp_path / name, source, Sweep({"n": (0, 1)}, {}), Profile(executor="slurm", time_limit="1:00:00"))
    asked: list[list[str]] = []

    def query_all(batches: list[Batch]) -> list[dict[str, JobInfo]]:
        asked.append([batch.path.name for batch in batches])
        return [{"n=0": JobInfo("queued", "Priority", "17_0")} for _ in batches]

    monkeypatch.setattr(SlurmExecutor, "query_all", query_all)
    monkeypatch.setattr(SlurmExecutor, "cancel", lambda *_: None)
    queue, path = Queue(), str(tmp_path / "a")
    for _ in range(3):
        answer = queue.read([str(tmp_path)])
        assert queue.read_job(path, "n=0")["job"]["reason"] == "Priority"
    assert asked == [["a", "b"]] and 0 <= answer["asked_s"]["slurm"] < 30
    job = jobs_of(answer, "b")["n=0"]
    assert (job["state"], job["reason"], job["id"]) == ("queued", "Priority", "17_0")
    queue.cancel(path, ["n=0"])
    queue.read([str(tmp_path)])
    assert len(asked) == 2
    Batch.create(tmp_path / "c", source, Sweep({}, {"n": 1}), Profile(executor="slurm"))  # submitted a moment ago
    assert len(queue.read([str(tmp_path)], fresh=True)["batches"]) == 3 and len(asked) == 3


@pytest.mark.parametrize("text", ["", "[]", '{"jobs": 7}', '{"accounting": true, "arrays": [{}], "cluster": 3}'])
@pytest.mark.parametrize(("executor", "name"), [("slurm", "slurm.json"), ("local", "jobs.json")])
def test_a_damaged_submission_hides_no_other_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str, name: str, text: str
) -> None:
    source, profile = notebook(tmp_path / "a.ipynb", "pass"), Profile(executor=executor, time_limit="1:00:00")
    for folder in "abc":
        batch = Batch.create(tmp_path / folder, source, Sweep({"n": (0, 1)}, {}), profile)
        submission = batch.create_submission(batch.jobs(), then=False)
        SubmissionRecord(accounting=False, arrays=[Array(17, Part(1, 0, 2))]).write(submission)
        (submission / "supervisor.lock").write_text("{}")
    (tmp_path / "b" / "submissions" / "1" / name).write_text(text)
    monkeypatch.setattr(slurm, "query_queue", lambda _: {"17_0": JobInfo("queued", "Priority", "17_0")})
    answer = ask(Session(), "queue", folders=[str(tmp_path)], fresh=True)["answer"]
    assert [batch["name"] for batch in answer["batches"]] == ["a", "b", "c"]
    if executor == "slurm":
        assert [jobs_of(answer, folder)["n=0"]["id"] for folder in "abc"] == ["17_0", "", "17_0"]
    (problem,) = answer["problems"]
    assert str(tmp_path / "b") in problem and str(tmp_path / "a") not in problem

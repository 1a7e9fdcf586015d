"""A supervisor without a process of its own: what it does with a job that cannot start, and with the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marlnb.batch.job.job import JOB_LOCK, JobStatus
from marlnb.batch.local.supervisor import Supervisor
from marlnb.batch.local.supervisor_files import read_entries
from marlnb.batch.sweep.sweep import Sweep
from marlnb.training.runs.lock import RunLock
from tests.batch.batches import Maker


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Maker(tmp_path)


def test_a_job_that_cannot_start_leaves_the_others_alone(maker: Maker) -> None:
    batch = maker("", n=(0, 1), python=maker.script("touch here"), at_once=2)
    submission = batch.create_submission(batch.jobs(), then=False)
    supervisor = Supervisor(batch, submission)
    other, runs = batch.jobs()
    (other.folder / "job.json").write_text('{"parameters": {"n": 9}}')  # of another batch
    supervisor.start_jobs()
    assert [process.job.name for process in supervisor.running] == ["n=1"]
    supervisor.running[0].popen.wait()
    assert (runs.folder / "here").exists()
    entry = read_entries(submission)["n=0"]
    assert entry.state == "ended" and "already holds a job with other parameters" in entry.reason
    assert other.status().state == "failed"


def test_the_report_waits_for_added_jobs_and_runs_after_one_that_runs_now(maker: Maker) -> None:
    batch = maker("", then="", python=maker.script("touch here"))
    first, second = (Supervisor(batch, batch.create_submission([], then=True)) for _ in range(2))
    batch.job("n=0").write_status(JobStatus("complete"))
    more = replace(batch, sweep=Sweep({"n": (0, 1)}, {}))
    more.write(batch.path / "source.ipynb", batch.path / "then.ipynb")
    first.add_report()
    assert not first.queue
    more.job("n=1").write_status(JobStatus("complete"))
    second.add_report()
    with RunLock(batch.report_job().folder / JOB_LOCK):  # as of an earlier supervisor, before n=1 was complete
        second.start_jobs()
        assert [job.name for job in second.queue] == ["report"] and not second.running
    second.start_jobs()
    second.running[0].popen.wait()
    assert (batch.report_job().folder / "here").exists()

"""A supervisor without a process of its own: what it does with a job that cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.batch.local.supervisor import Supervisor
from marlnb.batch.local.supervisor_files import read_entries
from tests.batch.batches import Maker


def test_a_job_that_cannot_start_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    maker = Maker(tmp_path)
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

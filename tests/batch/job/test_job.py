"""A job's folder: it is written once, its files give its status, and the executing process locks it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marlnb.batch.job.job import JOB_LOCK, JOB_STATUS, CellError, Job, JobStatus
from marlnb.errors import BatchError
from marlnb.training.runs.lock import RunLock


def make(tmp_path: Path) -> Job:
    job = Job(tmp_path / "job", tmp_path / "a.ipynb", {"n": 1, "text": "$(x)\n🎉"}, tmp_path, {"A": "b"})
    job.write()
    return job


def test_opens_as_it_was_written(tmp_path: Path) -> None:
    job = make(tmp_path)
    assert Job.open(job.folder) == job and job.folder.stat().st_mode & 0o777 == 0o700
    job.write()
    with pytest.raises(BatchError, match="already holds a job with other parameters"):
        replace(job, parameters={"n": 2}).write()
    with pytest.raises(BatchError, match="is not a job"):
        Job.open(tmp_path)
    moved = job.folder.rename(tmp_path / "moved")  # with the notebook next to it, as on another node's path
    assert Job.open(moved).notebook == tmp_path / "a.ipynb"


def test_values_that_python_calls_equal_are_other_parameters(tmp_path: Path) -> None:
    job = make(tmp_path)
    same: dict[str, Any] = {"text": job.parameters["text"], "n": 1}
    replace(job, parameters=same).write()  # the order does not matter
    for value in (True, 1.0):
        with pytest.raises(BatchError, match="already holds a job with other parameters"):
            replace(job, parameters={**same, "n": value}).check()


def test_a_status_outlives_versions_and_is_as_true_as_its_lock(tmp_path: Path) -> None:
    job = make(tmp_path)
    assert job.status() == JobStatus()
    error = CellError(2, "1 / 0", "ZeroDivisionError", "division by zero", "Traceback")
    job.write_status(JobStatus("failed", error=error))
    assert job.status().error == error and job.status().updated > 0
    file = job.folder / "job_status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "state": "running", "of_a_later_version": 1}))
    assert job.status().state == "interrupted" and "killed" in job.status().reason
    with RunLock(job.folder / JOB_LOCK):
        assert job.is_executing and job.status().state == "running"
    assert not job.is_executing


def test_one_that_ends_while_its_status_is_read_was_not_interrupted(tmp_path: Path) -> None:
    """Its last word and its lock fall between reading the one and looking at the other."""

    class Ending(Job):
        @property
        def is_executing(self) -> bool:
            (self.folder / JOB_STATUS).write_text(json.dumps(JobStatus("complete").to_json()))
            return False

    job = Ending(**vars(make(tmp_path)))
    job.write_status(JobStatus("running"))
    assert job.status().state == "complete"


def test_an_attempt_that_was_killed_is_listed_when_a_command_replaces_its_status(tmp_path: Path) -> None:
    job = make(tmp_path)
    running = JobStatus("running", attempt=3, started=100.0)
    with RunLock(job.folder / JOB_LOCK):
        job.write_status(running)
        job.write_status(replace(running, state="waiting"))  # by the process that executes it
        job.write_status(running)
    assert job.attempts() == []
    killed_at = job.status().updated
    for state in ("waiting", "stopped"):
        job.write_status(JobStatus(state))  # type: ignore[arg-type]
    (attempt,) = job.attempts()
    host = attempt.pop("host")
    assert host == os.uname().nodename
    reason = "it ended without a message"
    expected = {"attempt": 3, "started": 100.0, "ended": killed_at, "state": "interrupted", "reason": reason}
    assert attempt == expected

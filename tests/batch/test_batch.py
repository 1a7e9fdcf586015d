"""A batch's folder: made, opened, completed; existing files are not overwritten."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.cancel import cancel
from marlnb.batch.job.job import Job, JobInfo, JobStatus
from marlnb.batch.overview import job_rows
from marlnb.batch.profile import Profile, find_profile, with_changes
from marlnb.batch.submission_plan import make_plan
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import BatchError
from tests.batch.jobs import notebook

LOCAL = Profile()


def make(tmp_path: Path, n_seeds: int = 3) -> Batch:
    source = tmp_path / "a.ipynb"
    if not source.exists():
        notebook(source, "print(n)")
    return Batch.create(tmp_path / "batch", source, Sweep({"n": tuple(range(n_seeds))}, {"text": "x"}), LOCAL)


def test_what_is_made_is_private_and_opens_alike(tmp_path: Path) -> None:
    made = make(tmp_path)
    opened = Batch.open(made.path)
    assert opened == made and [job.name for job in opened.jobs()] == ["n=0", "n=1", "n=2"]
    assert opened.job("n=1").parameters == {"n": 1, "text": "x"}
    assert (made.path / "source.ipynb").read_text() == (tmp_path / "a.ipynb").read_text()
    sha256 = hashlib.sha256((tmp_path / "a.ipynb").read_bytes()).hexdigest()
    assert json.loads((made.path / "batch.json").read_text())["notebook_sha256"] == sha256
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert (made.path / "jobs" / "n=0").stat().st_mode & 0o777 == 0o700
    with pytest.raises(BatchError, match=r"no job 'n=3' of .*; did you mean"):
        opened.job("n=3")


def test_planned_writes_nothing(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "1")
    batch = Batch.create(tmp_path / "batch", source, Sweep({}, {}), LOCAL, write=False)
    assert [job.name for job in batch.jobs()] == ["only"] and not batch.path.exists()


def test_a_batch_that_is_there_is_completed(tmp_path: Path) -> None:
    first = make(tmp_path)
    done = first.job("n=0")
    done.write_status(JobStatus("complete"))
    written = (done.folder / "job.json").stat().st_mtime_ns
    more = Batch.create(
        first.path,
        tmp_path / "a.ipynb",
        Sweep({"n": tuple(range(4))}, {"text": "x"}),
        with_changes(find_profile("local"), {"environment": {"A": "b"}}),
    )
    assert [job.name for job in more.jobs()] == ["n=0", "n=1", "n=2", "n=3"]
    assert (done.folder / "job.json").stat().st_mtime_ns == written  # what it ran with stays known
    assert json.loads((more.job("n=1").folder / "job.json").read_text())["environment"]["A"] == "b"
    assert [job.name for job in more.unfinished()] == ["n=1", "n=2", "n=3"]


def test_a_notebook_with_windows_line_endings_is_completed(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "print(n)")
    source.write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    batch = make(tmp_path)
    assert (batch.path / "source.ipynb").read_bytes() == source.read_bytes()
    assert [job.name for job in make(tmp_path, 4).jobs()] == ["n=0", "n=1", "n=2", "n=3"]


def test_the_report_of_a_batch_that_was_moved_gets_the_new_folder(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "1")
    report = Batch.create(tmp_path / "batch", source, Sweep({}, {}), LOCAL, then=source).report_job()
    report.write()
    report.write_status(JobStatus("complete"))
    moved = Batch.open((tmp_path / "batch").rename(tmp_path / "moved"))
    moved.report_job().write()
    assert Job.open(moved.path / "report").parameters == {"batch": str(moved.path)}


def test_other_things_are_not_written_over(tmp_path: Path) -> None:
    first = make(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").touch()
    source = tmp_path / "a.ipynb"
    with pytest.raises(BatchError, match=r"thesis\.tex but no batch\.json"):
        Batch.create(tmp_path / "thesis", source, first.sweep, LOCAL)
    with pytest.raises(BatchError, match="is a file"):
        Batch.create(source, source, first.sweep, LOCAL)
    for write in (False, True):
        with pytest.raises(BatchError, match="n=0 already holds a job with other parameters"):
            Batch.create(first.path, source, Sweep({"n": (9, 0)}, {"text": "y"}), LOCAL, write=write)
    assert not (first.path / "jobs" / "n=9").exists()
    with pytest.raises(BatchError, match="is not a batch"):
        Batch.open(tmp_path / "thesis")
    notebook(source, "print('changed')")
    with pytest.raises(BatchError, match=r"is a batch of another version of .* or give --update-notebook"):
        Batch.create(first.path, source, first.sweep, LOCAL)
    changed = Batch.create(first.path, source, first.sweep, LOCAL, update_notebook=True)
    assert "changed" in (changed.path / "source.ipynb").read_text()


def test_a_job_file_that_a_power_cut_left_empty_is_written_again(tmp_path: Path) -> None:
    file = make(tmp_path).job("n=0").folder / "job.json"
    file.write_text("")
    make(tmp_path)
    assert json.loads(file.read_text())["parameters"] == {"n": 0, "text": "x"}


def test_temporary_files_of_killed_commands_are_deleted(tmp_path: Path) -> None:
    batch = make(tmp_path)
    left = [batch.job("n=0").folder / ".job.json.99999999"]
    left.append(batch.create_submission(batch.jobs(), then=False) / ".jobs.json.99999999")
    for path in left:
        path.touch()
    make(tmp_path).create_submission(batch.jobs(), then=False)
    assert not any(path.exists() for path in left)


def test_statuses_join_files_and_executor(tmp_path: Path) -> None:
    batch = make(tmp_path)
    batch.job("n=0").write_status(JobStatus("complete"))
    batch.job("n=1").write_status(JobStatus("running"))  # its lock is free
    known = {"n=0": JobInfo("ended", "old"), "n=2": JobInfo("queued", "Priority", "17_2")}
    statuses = batch.statuses(known)
    assert [status.state for status in statuses.values()] == ["complete", "interrupted", "waiting"]
    assert statuses["n=0"].reason == "" and "killed" in statuses["n=1"].reason
    assert (statuses["n=2"].reason, statuses["n=2"].scheduler_id) == ("Priority", "17_2")
    assert list(batch.table(known)["n"]) == [0, 1, 2]


def test_a_swept_parameter_may_be_called_as_a_column(tmp_path: Path) -> None:
    source = notebook(tmp_path / "a.ipynb", "1")
    sweep = Sweep({"n": (0,), "seconds": (7, 8), "job": ("a",)}, {})
    table = Batch.create(tmp_path / "batch", source, sweep, LOCAL, write=False).table()
    assert list(table["parameter seconds"]) == [7, 8] and list(table["parameter job"]) == ["a", "a"]
    assert list(table["seconds"]) == [0.0, 0.0] and table["job"][0] == "n=0,seconds=7,job=a"


def test_a_damaged_status_hides_no_other_job(tmp_path: Path) -> None:
    batch = make(tmp_path)
    batch.job("n=1").write_status(JobStatus("complete"))
    damaged = batch.job("n=0").folder / "job_status.json"
    for content in ("", '{"state": "complete", "attempt": "1"}', '{"started": -Infinity}', "[" * 100_000):
        damaged.write_text(content)
        states = {row.job.name: (row.state, row.status.reason) for row in job_rows(batch)}
        assert states["n=0"][0] == "failed" and states["n=0"][1].startswith(f"{damaged} ")
        assert states["n=1"] == ("complete", "") and states["n=2"] == ("waiting", "")
    damaged.unlink()
    os.mkfifo(damaged)
    assert "pipe" in batch.job("n=0").status().reason and len(job_rows(batch)) == 3
    planned = make_plan(batch, batch.path / "source.ipynb").jobs[0]
    assert planned.submits and str(damaged) in planned.action
    batch.job("n=0").write_status(JobStatus("complete"))  # as the attempt that follows does
    assert not batch.job("n=0").status().reason


def test_a_sweep_has_a_limit() -> None:
    axes = {name: tuple(range(1000)) for name in "abcdefgh"}
    with pytest.raises(BatchError, match="at most 100,000"):
        Sweep(axes, {})


def test_a_job_without_a_folder_is_cancelled(tmp_path: Path) -> None:
    """As of a batch whose folder was half written."""
    batch = make(tmp_path)
    shutil.rmtree(batch.job("n=0").folder)
    cancel(batch, ["n=0"])
    assert batch.job("n=0").status().state == "stopped"


def test_a_thousand_jobs_are_made_and_asked_without_an_fsync_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take minutes on a disk that is shared."""
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or fsync(descriptor))
    source = notebook(tmp_path / "a.ipynb", "1")
    batch = Batch.create(tmp_path / "batch", source, Sweep({"n": tuple(range(1000))}, {}), LOCAL)
    for job in batch.jobs():
        job.write_status(JobStatus("complete", seconds=1.0))
    assert len(Batch.open(batch.path).statuses()) == 1000
    assert 1 <= len(synced) <= 5

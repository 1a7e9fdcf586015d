"""Following a run: every line once, none torn, and all again after a resume has cut the files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from marlnb.errors import RunError
from marlnb.training.runs.files import METRICS
from marlnb.training.runs.follow import RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from tests.training.toys import count_experiment


def test_each_look_finds_what_is_new(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", count_experiment())
    follower = RunFollower(run)
    assert follower.read().rows == [] and follower.read().status["state"] == "created"
    run.append_metrics({"iteration": 1})
    run.append_metrics({"iteration": 2})
    run.log_event("hello")
    first = follower.read()
    assert [row["iteration"] for row in first.rows] == [1, 2] and first.events[0].endswith("hello")
    assert follower.read().rows == []
    with open(run.path / METRICS, "a") as file:
        file.write('{"iteration": 3')
        file.flush()
        assert follower.read().rows == []
        file.write("}\n")
    assert follower.read().rows == [{"iteration": 3}]


def test_a_resumed_run_is_read_from_the_start(tmp_path: Path) -> None:
    run = train(count_experiment(), tmp_path / "run", progress=False)
    follower = RunFollower(run)
    before = [row["iteration"] for row in follower.read().rows]
    run.cut_metrics(before[-2])
    changes = follower.read()
    assert changes.restarted and [row["iteration"] for row in changes.rows] == before[:-1]
    resume(run, frames=2 * run.experiment.frames, progress=False)
    changes = follower.read()
    iterations = [row["iteration"] for row in changes.rows]
    assert changes.restarted and iterations == sorted(set(iterations)) and len(changes.rows) == len(run.metrics())
    assert not follower.read().restarted and follower.read().rows == []


def test_what_a_failed_call_has_read_is_read_again(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", count_experiment())
    run.append_metrics({"iteration": 1})
    follower, metrics = RunFollower(run), run.path / METRICS
    text = metrics.read_text()
    metrics.write_text(f"{text}damaged\n")
    for _ in range(2):
        with pytest.raises(RunError, match=r"metrics.jsonl, line 2, is damaged"):
            follower.read()
    metrics.write_text(text)
    changes = follower.read()
    assert changes.restarted and changes.rows == [{"iteration": 1}]


def test_a_folder_that_is_deleted_meanwhile_has_nothing_new(tmp_path: Path) -> None:
    done = train(count_experiment(), tmp_path / "done", progress=False)
    done.write_status("running")
    (done.path / "lock").touch()
    run = Run(tmp_path / "run", done.experiment)
    come_and_go = f"while :; do cp -r {done.path} {run.path}; rm -r {run.path}; done"
    with subprocess.Popen(["sh", "-c", come_and_go], stderr=subprocess.DEVNULL) as shell:
        try:
            for _ in range(5000):
                assert RunFollower(run).read().status["state"] in ("created", "interrupted", "missing")
        finally:
            shell.terminate()

"""Killed and signalled at random moments, a job ends with the weights, the curve and the notebook of one left alone.

Each job starts a kernel that imports torch, about 20 in all: this takes more than half a minute, and is limited
generously, since the machine may be doing other things.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from marlnb.batch.job import Job
from marlnb.batch.progress import find_training
from marlnb.training.files import read_lines
from marlnb.training.run import Run
from tests.batch.jobs import TRAINING, make, start, wait_for

AFTER = """
recording = mnb.record(trained, episodes=8, exist="open")
assert recording.complete
print([c.iteration for c in trained.checkpoints], list(trained.recordings))
print(float(recording.steps("listener", "reward").to_numpy().sum()))
"""
pytestmark = pytest.mark.timeout(900)
TIMINGS = ("seconds", "frames_per_second", "stepping_s", "acting_s", "learning_s")
FRAMES = 8_000


def metrics(job: Job) -> list[dict[str, Any]]:
    rows = read_lines(job.folder / "metrics.jsonl")
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


def said(job: Job) -> list[str]:
    """What the executed notebook shows, but for rates and times."""
    shown = []
    for cell in nbformat.read(job.folder / "notebook.ipynb", as_version=4).cells:
        for output in cell.get("outputs", []):
            text = output.get("text") or output["data"]["text/plain"]
            shown.append(re.sub(r"[\d.]+[kM]?/s", "RATE/s", text.replace(str(job.folder), "FOLDER")))
    return shown


def execute(job: Job) -> None:
    process = start(job)
    try:
        assert process.wait(timeout=200) == 0, job.log.read_text()
    finally:
        process.kill()


def assert_same(job: Job, other: Job) -> None:
    """Checkpoints hash their seconds too, so weights are compared one by one."""
    mine, theirs = Run.open(job.folder).checkpoints, Run.open(other.folder).checkpoints
    assert [c.iteration for c in mine] == [c.iteration for c in theirs]
    assert metrics(job) == metrics(other) and len(metrics(job)) == FRAMES // 100
    for name, policy in Run.open(other.folder).policies().items():
        own = Run.open(job.folder).policies()[name].state_dict()
        assert all((own[key] == value).all() for key, value in policy.state_dict().items())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = make(tmp_path_factory.mktemp("undisturbed") / "job", TRAINING, AFTER, frames=FRAMES)
    execute(job)
    return job


@pytest.mark.parametrize(("name", "times"), [("SIGKILL", 3), ("SIGUSR1", 2), ("SIGTERM", 1)])
def test_a_job_ends_as_if_it_had_been_left_alone(tmp_path: Path, undisturbed: Job, name: str, times: int) -> None:
    job = make(tmp_path / "job", TRAINING, AFTER, frames=FRAMES)
    number, draw = signal.Signals[name], random.Random(f"{name} {tmp_path}")
    for disturbance in range(times):
        process = start(job)
        try:
            at = (disturbance + draw.random()) / (times + 1) * FRAMES / 100  # each later than the one before
            wait_for(lambda a=disturbance + 1: job.status().attempt == a and find_training(job.folder), process)
            wait_for(lambda at=at: len(read_lines(job.folder / "metrics.jsonl")) >= at, process)
            time.sleep(draw.uniform(0, 0.1))
            began = time.monotonic()
            os.killpg(process.pid, number)
            code = process.wait(timeout=30)
        finally:
            process.kill()
        assert code in (-signal.SIGKILL, os.EX_TEMPFAIL), f"disturbance {disturbance}: {job.log.read_text()}"
        assert time.monotonic() - began < 20
        assert job.status().state == "interrupted"
    execute(job)
    assert job.status().attempt == times + 1
    assert_same(job, undisturbed)
    assert said(job) == said(undisturbed)


@pytest.mark.parametrize("seconds", [0.3, 1.5, 3.0])
def test_killed_before_and_after_the_training(tmp_path: Path, undisturbed: Job, seconds: float) -> None:
    job = make(tmp_path / "job", TRAINING, AFTER, frames=FRAMES)
    process = start(job)
    time.sleep(seconds)  # while papermill is imported, the kernel starts, marlnb is imported
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process = start(job)
    wait_for(lambda: len(read_lines(job.folder / "metrics.jsonl")) == FRAMES // 100, process)
    time.sleep(seconds)  # while the last checkpoint is written, the recording, notebook.html
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    execute(job)
    assert_same(job, undisturbed)
    assert said(job) == said(undisturbed)

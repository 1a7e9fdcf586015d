"""Killed and signalled at random moments, a job ends with the weights, curve and notebook of an uninterrupted one.

Eight kernels, six of which train: about 35 s alone on an idle core. Fifty kills of one training run: `make
    cluster-test`.
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

from marlnb.batch.job.job import Job
from marlnb.batch.job.training_progress import active_training
from marlnb.training.runs.files import STOP, read_lines
from marlnb.training.runs.run import Run
from tests.batch.jobs import TRAINING, make, start, wait_for

AFTER = """
recording = mnb.record(trained, episodes=4, exist="open")
assert recording.complete
print([c.iteration for c in trained.checkpoints], list(trained.recordings))
print(float(recording.steps("listener", "reward").to_numpy().sum()))
"""
HELD = """
import pathlib, time
def hold(report):
    while pathlib.Path(run, "cache", f"hold_at_{report.iteration}").exists():
        time.sleep(0.01)
""" + TRAINING.replace("resume=True", "resume=True, on_report=[hold]")
pytestmark = pytest.mark.timeout(600)  # generous: the machine may be doing other things
TIMINGS = ("seconds", "frames_per_second", "stepping_s", "acting_s", "learning_s")
FRAMES = 5_000
ITERATIONS = FRAMES // 100


def metrics(job: Job) -> list[dict[str, Any]]:
    rows = read_lines(job.folder / "metrics.jsonl")
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


def printed(job: Job) -> list[str]:
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
        process.wait()


def disturb(job: Job, name: str, at: float) -> None:
    """Begins an attempt and ends it by a signal to all of its processes.

    Args:
        at: the iteration after which the signal comes. Ten later the training waits for it, so that it comes before
            the end however late it is.
    """
    attempt = job.status().attempt + 1
    hold = job.folder / "cache" / f"hold_at_{int(at) + 10}"
    hold.parent.mkdir(exist_ok=True)
    hold.touch()
    process = start(job)
    try:
        wait_for(lambda: job.status().attempt == attempt and active_training(job.folder), process)
        wait_for(lambda: len(read_lines(job.folder / "metrics.jsonl")) >= at, process)
        time.sleep(random.random() * 0.1)
        os.killpg(process.pid, signal.Signals[name])
        wait_for(lambda: (job.folder / STOP).exists() or process.poll() is not None)
        hold.unlink()
        code = process.wait(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert code == (-signal.SIGKILL if name == "SIGKILL" else os.EX_TEMPFAIL), job.log.read_text()
    assert job.status().state == "interrupted"


def kill(job: Job, after_s: float, iterations: int = 0) -> None:
    """Starts an attempt and kills it some time later, or after a total number of iterations."""
    process = start(job)
    wait_for(lambda: len(read_lines(job.folder / "metrics.jsonl")) >= iterations, process)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def assert_same(job: Job, other: Job) -> None:
    """Checkpoints hash their seconds too, so weights are compared one by one."""
    mine, theirs = Run.open(job.folder), Run.open(other.folder)
    assert [c.iteration for c in mine.checkpoints] == [c.iteration for c in theirs.checkpoints]
    assert metrics(job) == metrics(other) and len(metrics(job)) == ITERATIONS
    policies = mine.policies()
    for name, policy in theirs.policies().items():
        own = policies[name].state_dict()
        assert all((own[key] == value).all() for key, value in policy.state_dict().items())
    assert printed(job) == printed(other)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = make(tmp_path_factory.mktemp("undisturbed") / "job", HELD, AFTER, frames=FRAMES)
    execute(job)
    return job


def test_a_job_ends_as_if_it_had_been_left_alone(tmp_path: Path, undisturbed: Job) -> None:
    job = make(tmp_path / "job", HELD, AFTER, frames=FRAMES)
    disturb(job, "SIGUSR1", 0.25 * ITERATIONS)
    disturb(job, "SIGKILL", 0.55 * ITERATIONS)
    execute(job)
    assert job.status().attempt == 3
    assert_same(job, undisturbed)


def test_killed_before_and_after_the_training(tmp_path: Path, undisturbed: Job) -> None:
    job = make(tmp_path / "job", HELD, AFTER, frames=FRAMES)
    kill(job, after_s=0.3)  # while papermill is imported
    kill(job, after_s=2.5)  # while marlnb is imported
    kill(job, after_s=0.3, iterations=ITERATIONS)  # while the last checkpoint, or the recording, is written
    execute(job)
    assert_same(job, undisturbed)

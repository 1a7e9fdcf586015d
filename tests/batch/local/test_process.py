"""A job's process: what it is given, and the signals that end it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from marlnb.batch.job.job import Job
from marlnb.batch.local import process as module
from marlnb.batch.local.process import JobProcess, environment, frames_of, processes_of, time_limit_schedule
from marlnb.batch.profile import Profile
from tests.batch.batches import Maker, wait_until


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def started(maker: Maker, script: str, **profile: str) -> JobProcess:
    """A job's process that has got as far as to write `ready`."""
    batch = maker("", python=maker.script(script), **profile)
    process = JobProcess.start(batch.jobs()[0], batch.profile, [], [])
    wait_until((process.job.folder / "ready").exists)
    return process


def test_the_environment_has_threads_gpus_and_no_allocation(maker: Maker) -> None:
    job = Job(maker.folder / "job", maker.folder / "a.ipynb", {}, maker.folder, {"WANDB_MODE": "offline"})
    inherited = {"OMP_NUM_THREADS": "64", "SLURM_JOB_ID": "17", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert environment(inherited, job, Profile(cores=3, gpus=1), ["1"]) == {
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
        "NUMEXPR_NUM_THREADS": "3",
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "MARLNB_JOB": str(job.folder),
        "WANDB_MODE": "offline",
    }
    assert environment(inherited, job, Profile(), [])["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_time_limit_warns_asks_and_kills() -> None:
    before = time.monotonic()
    plan = time_limit_schedule(Profile(time_limit="01:00:00", warn_s=300))
    after = time.monotonic()
    assert [number.name for _, number in plan] == ["SIGUSR1", "SIGTERM", "SIGKILL"]
    for (when, _), due_s in zip(plan, (3300, 3600, 3630)):
        assert before + due_s <= when <= after + due_s
    assert time_limit_schedule(Profile()) == []
    unwarned = time_limit_schedule(Profile(time_limit="01:00:00", warn_s=0))
    assert [number.name for _, number in unwarned] == ["SIGTERM", "SIGKILL"]


def test_one_that_heeds_nothing_is_killed_with_all_that_it_started(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVE_S", 0.3)
    process = started(maker, "trap '' TERM USR1\nsetsid sleep 100 &\ntouch ready\nwhile true; do sleep 0.05; done")
    assert len(processes_of(process.job.folder)) >= 2
    process.interrupt()
    sent = []
    while process.popen.poll() is None:
        sent.append(process.send_due_signal())
        time.sleep(0.02)
    assert [number for number in sent if number] == [signal.SIGTERM, signal.SIGKILL]
    wait_until(lambda: not processes_of(process.job.folder))
    assert process.outcome() == "killed by SIGKILL" and not process.reached_time_limit


def test_a_cancelled_job_is_asked_again_when_its_start_took_the_request_away(maker: Maker) -> None:
    process = started(maker, "touch ready\nuntil [ -e STOP ]; do sleep 0.02; done; rm STOP\n" * 2 + "exit 130")
    stop = process.job.folder / "STOP"
    stop.symlink_to(stop)
    process.cancel()  # the disk refuses, as a full one
    stop.unlink()
    process.cancel()
    wait_until(lambda: not stop.exists())
    assert process.popen.poll() is None
    process.cancel()
    assert process.popen.wait(timeout=120) == 130
    process.cancel()
    assert not stop.exists()  # nothing stays for the next attempt
    assert process.outcome() == "stopped" and process.end_request == "cancelled"


def test_a_python_in_the_home_folder(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(maker.folder))
    batch = maker("", python=f"~/{Path(maker.script('exit 7')).name}")
    assert JobProcess.start(batch.jobs()[0], batch.profile, [], []).popen.wait(timeout=120) == 7


def test_it_is_bound_to_its_cores_and_leads_a_session(maker: Maker) -> None:
    batch = maker("", python=maker.script("touch ready; exec sleep 100"))
    core = max(os.sched_getaffinity(0))
    process = JobProcess.start(batch.jobs()[0], batch.profile, [str(core)], [])
    assert os.sched_getaffinity(process.popen.pid) == {core} and os.getsid(process.popen.pid) == process.popen.pid
    process.popen.kill()
    assert process.outcome() == "killed by SIGKILL"


@pytest.mark.parametrize("content", ["", '{"frames": null}', '{"fra', "[]"])
def test_a_damaged_status_of_its_training_counts_no_frames(maker: Maker, content: str) -> None:
    (job,) = maker("").jobs()
    assert frames_of(job) == 0
    (job.folder / "status.json").write_text('{"state": "running", "frames": 20}')
    assert frames_of(job) == 20
    (job.folder / "status.json").write_text(content)
    assert frames_of(job) == 0

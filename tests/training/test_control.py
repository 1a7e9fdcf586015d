"""Requests left as files, heeded between iterations: by a training run in this thread and by one in another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from marlnb.errors import ConfigError, RunError, StoppedError
from marlnb.experiment import Experiment
from marlnb.training.background import Training, start
from marlnb.training.control import cancel_request, is_requested, request
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from tests.training.toys import count_experiment


def _until(holds: Callable[[], bool], deadline_s: float = 120.0) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def _endless(*overrides: str) -> Experiment:
    return count_experiment("frames=100_000_000", "checkpoint_every=1_000_000", *overrides)


def _iterations(run: Run) -> int:
    return len((run.path / "metrics.jsonl").read_text().splitlines()) if (run.path / "metrics.jsonl").exists() else 0


@pytest.fixture
def training(tmp_path: Path) -> Training:
    started = start(_endless(), tmp_path / "run")
    _until(lambda: _iterations(started.run) > 2)
    return started


def test_a_paused_training_stands_still_and_continues(training: Training) -> None:
    training.pause()
    _until(lambda: training.run.status()["state"] == "paused")
    stood = _iterations(training.run)
    time.sleep(0.3)
    assert _iterations(training.run) == stood and training.is_alive
    training.resume()
    _until(lambda: _iterations(training.run) > stood)
    assert training.run.status()["state"] == "running"
    training.stop()
    assert training.wait(120).status()["state"] == "stopped"
    words = [line.split(" ", 1)[1] for line in training.run.events()]
    assert f"paused at iteration {stood}" in words and "resumed" in words


def test_a_training_can_be_paused_before_its_first_iteration(tmp_path: Path) -> None:
    training = start(_endless(), tmp_path / "run")
    training.pause()
    _until(lambda: training.run.status()["state"] == "paused")
    assert _iterations(training.run) == 1
    training.stop()
    training.wait(120)


def test_a_paused_training_can_be_saved_and_stopped(training: Training) -> None:
    training.pause()
    _until(lambda: training.run.status()["state"] == "paused")
    training.save()
    _until(lambda: bool(training.run.checkpoints))
    assert training.run.checkpoint().iteration == _iterations(training.run)
    training.stop()
    training.wait(120)
    assert not training.is_alive and training.run.status()["state"] == "stopped"


def test_a_training_stays_in_its_folder_when_the_notebook_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    training = start(_endless(), "runs/a")
    assert repr(training.run).startswith("Run('runs/a', ")
    _until(lambda: bool(_iterations(training.run)))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    n_before = _iterations(training.run)
    _until(lambda: not training.is_alive or _iterations(training.run) > n_before)
    training.stop()
    assert training.wait(120).checkpoint().iteration == _iterations(training.run)
    assert not list(Path().iterdir()) and f"Run('{tmp_path}/runs/a', " in repr(training)


def test_a_checkpoint_on_request(training: Training) -> None:
    training.save()
    _until(lambda: bool(training.run.checkpoints))
    assert training.is_alive and not is_requested(training.run.path, "save")
    training.stop()
    training.wait(120)


def test_old_requests_do_not_hold_up_a_later_training(tmp_path: Path) -> None:
    experiment = count_experiment()
    run = Run.create(tmp_path / "run", experiment)
    request(run.path, "pause")
    request(run.path, "save")
    assert train(experiment, run.path, resume=True, progress=False).status()["state"] == "complete"
    assert not is_requested(run.path, "pause") and not is_requested(run.path, "save")
    cancel_request(run.path, "pause")  # what is not there can be taken back too


def test_an_old_stop_does_not_end_a_later_training_but_in_a_job_it_may_be_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = count_experiment("frames=64")
    run = Run.create(tmp_path / "run", experiment)
    monkeypatch.setenv("MARLNB_JOB", str(tmp_path))
    request(run.path, "stop", "by a person")
    with pytest.raises(StoppedError, match="iteration 0"):
        train(experiment, run.path, resume=True, progress=False)
    monkeypatch.delenv("MARLNB_JOB")
    request(run.path, "stop")
    assert train(experiment, run.path, resume=True, progress=False).status()["state"] == "complete"
    request(run.path, "stop")
    assert resume(run, frames=96, progress=False).status()["state"] == "complete"


def test_a_resumed_training_can_be_paused_and_saved_at_once(tmp_path: Path) -> None:
    experiment = _endless()
    training = start(experiment, Run.create(tmp_path / "run", experiment).path, resume=True)
    training.pause()
    training.save()
    _until(lambda: training.run.status()["state"] == "paused")
    assert _iterations(training.run) == 1 and training.run.checkpoint().iteration == 1
    training.stop()
    training.wait(120)


def test_requests_to_a_training_are_not_removed_by_a_second_one(tmp_path: Path) -> None:
    experiment = _endless()
    training = start(experiment, tmp_path / "run")
    training.pause()
    _until(lambda: training.run.status()["state"] == "paused")
    with pytest.raises(RunError, match="is being trained already"):
        train(experiment, tmp_path / "run", resume=True, progress=False)
    assert is_requested(training.run.path, "pause")
    training.stop()
    training.wait(120)


def test_awaiting_waits_for_the_end_while_the_event_loop_runs(tmp_path: Path) -> None:
    ticks = 0

    async def both() -> Run:
        nonlocal ticks
        training = start(count_experiment(), tmp_path / "run")
        other = asyncio.ensure_future(tick())
        run = await training
        other.cancel()
        return run

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    assert asyncio.run(both()).status()["state"] == "complete" and ticks > 1


def test_a_cancelled_await_asks_the_training_to_stop(tmp_path: Path) -> None:
    trainings: list[Training] = []

    async def cut_short() -> None:
        trainings.append(start(_endless(), tmp_path / "run"))
        await asyncio.wait_for(trainings[0], 0.2)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(cut_short())
    assert trainings[0].wait(120).status()["state"] == "stopped"


def test_an_error_is_stored_and_raised_by_wait(tmp_path: Path) -> None:
    class Fault(Exception):
        pass

    def fail(report: object) -> None:
        raise Fault("here")

    training = start(_endless(), tmp_path / "run", on_report=[fail])
    with pytest.raises(Fault, match="here"):
        training.wait(120)
    assert isinstance(training.error, Fault)
    status, events = training.run.status(), training.run.events()
    assert (status["state"], status["reason"], training.run.checkpoint().iteration) == ("stopped", "Fault: here", 1)
    assert any(line.endswith("ended after iteration 1: Fault('here')") for line in events)
    assert any(line.startswith("Traceback") or " Traceback" in line for line in events)
    with pytest.raises(RunError, match="exists already"):
        start(_endless(), tmp_path / "run")


def test_a_training_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    words = ("env=mpe/simple_tag", "algorithm=ippo", "frames=100", "n_envs=4", "rollout_steps=25", "target_return=5")
    training = start(Experiment.compose(*words), tmp_path / "run")
    with pytest.raises(ConfigError, match="target_group"):
        training.wait(120)
    assert not (tmp_path / "run").exists()
    corrected = start(Experiment.compose(*words, "target_group=agent"), tmp_path / "run")
    assert corrected.wait(120).status()["state"] == "complete"

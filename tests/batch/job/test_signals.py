"""Signals and the file STOP, to a job that does not train."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from marlnb.batch.job import signals
from marlnb.batch.job.signals import Interruption, StopRequests
from marlnb.batch.job.training_progress import ActiveTraining, active_training, run_of_job
from marlnb.errors import DiskError
from marlnb.training.runs.lock import RunLock


@pytest.fixture
def messages() -> list[str]:
    return []


def test_a_stop_followed_at_once_by_a_signal_is_a_stop(tmp_path: Path, messages: list[str]) -> None:
    """As `marlnb cancel` and then `scancel`: the job has not checked for the file yet."""
    with StopRequests(tmp_path, messages.append) as requests:
        (tmp_path / "STOP").touch()
        with pytest.raises(Interruption, match="the file STOP"):
            os.kill(os.getpid(), signal.SIGTERM)
        assert requests.stopped and requests.pending
    assert not (tmp_path / "STOP").exists()


def test_a_signal_alone_is_an_interruption(tmp_path: Path, messages: list[str]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with StopRequests(tmp_path, messages.append) as requests:
        with pytest.raises(Interruption, match="SIGUSR1"):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert not requests.stopped and requests.signal == "SIGUSR1"
    assert signal.getsignal(signal.SIGUSR1) == before


def test_while_files_are_written_at_the_end_the_first_signal_waits(tmp_path: Path, messages: list[str]) -> None:
    with StopRequests(tmp_path, messages.append) as requests:
        requests.armed = False
        os.kill(os.getpid(), signal.SIGTERM)
        assert "its files are being written" in messages[0] and requests.pending
        with pytest.raises(Interruption):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_copied_job_asks_only_its_own_training_to_stop(tmp_path: Path, messages: list[str]) -> None:
    """The original trains in a folder elsewhere, which the copied file names."""
    run, original, copy = tmp_path / "run", tmp_path / "original", tmp_path / "copy"
    for folder in (run, original):
        folder.mkdir()
    (run / "experiment.json").touch()
    (run / "status.json").write_text('{"state": "running"}')
    (original / "training.json").write_text(json.dumps({"run": str(run), "job": str(original)}))
    shutil.copytree(original, copy)
    with RunLock(run / "lock"):
        training = active_training(original)
        assert training is not None and training.run == run and active_training(copy) is None
        (run / "STOP").touch()
        with StopRequests(copy, messages.append):
            pass
        assert (run / "STOP").exists() and run_of_job(copy) == run


def test_a_stop_that_could_not_be_passed_on_is_passed_on_later(
    tmp_path: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training has another folder, on a disk that is full at first."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(signals, "active_training", lambda _: ActiveTraining(run, ""))

    def full(*_: object, **__: object) -> None:
        raise DiskError("full")

    with StopRequests(tmp_path, messages.append) as requests:
        (tmp_path / "STOP").touch()
        with monkeypatch.context() as patch, pytest.raises(DiskError):
            patch.setattr(signals, "write_atomically", full)
            requests.poll()
        assert not (run / "STOP").exists()
        requests.poll()
        assert (run / "STOP").exists() and not (tmp_path / "STOP").exists() and requests.stopped

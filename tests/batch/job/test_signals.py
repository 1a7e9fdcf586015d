"""Signals and the file STOP, to a job that does not train."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from marlnb.batch.job import signals
from marlnb.batch.job.signals import Interruption, StopRequests
from marlnb.batch.job.training_progress import ActiveTraining
from marlnb.errors import DiskError


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

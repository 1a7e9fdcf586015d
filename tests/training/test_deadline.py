from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from marlnb.errors import AllocationEndsError
from marlnb.training.deadline import Deadline
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from tests.training.toys import count_experiment


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    """A clock that is set by hand, by which time passes, and an allocation that ends at 10,000 s."""
    now, jump_s = [0.0], [0.0]
    clocks = SimpleNamespace(time=lambda: now[0] - jump_s[0], monotonic=lambda: now[0] + 1234)
    monkeypatch.setattr("marlnb.training.deadline.time", clocks)
    monkeypatch.setenv("MARLNB_ENDS_AT", "10000")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def set_to(seconds: float, *, set_back_s: float = 0.0) -> None:
        now[0], jump_s[0] = seconds, set_back_s

    return set_to


@pytest.mark.parametrize(
    ("entered", "iteration_s", "checkpoint_s", "last_s"),
    [
        (0, 0, 0, 9940),  # a minute
        (0, 0, 100, 9800),  # twice a checkpoint
        (0, 300, 0, 9640),  # a minute after one more iteration
        (9900, 0, 0, 9975),  # of 100 s left at the beginning, a quarter
    ],
)
def test_the_margin(clock, entered: float, iteration_s: float, checkpoint_s: float, last_s: float) -> None:
    clock(entered)
    deadline = Deadline()
    deadline.record_checkpoint(checkpoint_s)
    clock(last_s - 1)
    assert deadline.reason_to_stop(iteration_s) is None
    clock(last_s + 1)
    reason = deadline.reason_to_stop(iteration_s)
    assert reason is not None and reason.startswith("the allocation ends in ")


def test_a_clock_that_is_set_back_does_not_move_the_end(clock, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = Deadline()
    clock(9939, set_back_s=3600)
    assert deadline.reason_to_stop(0) is None
    clock(9950, set_back_s=3600)
    assert deadline.reason_to_stop(0) == "the allocation ends in 50 s"
    monkeypatch.setenv("MARLNB_ENDS_AT", "20000")  # more time was granted
    assert deadline.reason_to_stop(0) is None
    clock(19950, set_back_s=3600)
    assert deadline.reason_to_stop(0) == "the allocation ends in 50 s"


def test_more_time_that_was_granted_is_used(clock, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = Deadline()
    clock(9950)
    monkeypatch.setenv("MARLNB_ENDS_AT", "20000")
    assert deadline.reason_to_stop(0) is None
    clock(19950)
    assert deadline.reason_to_stop(0) == "the allocation ends in 50 s"


def test_a_limit_that_was_shortened_since_it_was_shown_is_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho {int(time.time()) + 1000}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for name in ("MARLNB_ENDS_AT", "MARLNB_JOB", "SLURM_JOB_END_TIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("marlnb.allocations._known_ends", {"17": (time.time() + 10_000, "")})
    assert Deadline().reason_to_stop(950) is not None


def test_an_end_in_the_past_is_not_heeded(clock) -> None:
    clock(10001)
    deadline = Deadline()
    assert deadline.ignored and deadline.reason_to_stop(0) is None


def test_a_training_saves_before_its_allocation_ends_and_continues_in_the_next(
    clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MARLNB_JOB", raising=False)
    experiment = count_experiment("frames=400")
    expected = train(experiment, tmp_path / "whole", progress=False)

    clock(9760)
    later = [lambda report: clock(9760 + 24 * report.iteration)]
    run = train(experiment, tmp_path / "run", progress=False, on_report=later)
    assert run.status()["iteration"] == 8  # of four minutes, the last is kept for saving
    status = run.status()
    assert status["state"] == "stopped" and status["reason"].startswith("the allocation ends in ")
    assert 0 < run.checkpoint().iteration == status["iteration"]
    assert any("stopping: the allocation ends in " in line for line in run.events())
    assert "because the allocation ends in" in capsys.readouterr().err
    monkeypatch.delenv("MARLNB_ENDS_AT")
    again = train(experiment, tmp_path / "run", resume=True, progress=False)
    assert again.status()["state"] == "complete" and "reason" not in again.status()
    assert weights_sha256(again.policies()) == weights_sha256(expected.policies())


def test_in_a_batch_job_the_notebook_ends_with_an_error_of_its_own(
    clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARLNB_JOB", str(tmp_path))
    clock(9999)
    slow = [lambda report: clock(9999 + 0.1 * report.iteration)]
    with pytest.raises(AllocationEndsError, match=r"because the allocation ends in .*resumes from there when"):
        train(count_experiment("frames=1_000_000"), tmp_path / "run", progress=False, on_report=slow)
    assert Run.open(tmp_path / "run").status()["state"] == "stopped"

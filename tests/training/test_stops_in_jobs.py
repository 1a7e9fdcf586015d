"""A training run that a batch job stops and resumes ends as an uninterrupted one, whatever its environment supports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marlnb.errors import StoppedError
from marlnb.experiment import Experiment
from marlnb.training import checkpoint_saver
from marlnb.training.reporting.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from tests.training.toys import count_experiment

EVERY = 4


def stop_at(run: Path, iteration: int) -> Callable[[Report], None]:
    def look(report: Report) -> None:
        if report.iteration == iteration:
            (run / "STOP").write_text("SIGUSR1")

    return look


def toy(*, savable: bool) -> Experiment:
    overrides = ("env=toy/count", f"env.savable={str(savable).lower()}", f"checkpoint_every={EVERY}")
    return count_experiment(*overrides, "keep_checkpoints=0")


def learned(run: Run) -> tuple[list[int], list[object]]:
    columns = ["iteration", "recent_return", "length"]
    rows = run.metrics().astype(object).where(lambda table: table.notna(), None)
    learning = [name for name in rows.columns if name.startswith(("learning/", "returns/"))]
    return [checkpoint.iteration for checkpoint in run.checkpoints], rows[columns + learning].to_numpy().tolist()


@pytest.mark.parametrize("savable", [True, False])
def test_stops_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, savable: bool) -> None:
    experiment = toy(savable=savable)
    calm = train(experiment, tmp_path / "calm", progress=False)
    iterations = calm.checkpoint().iteration
    assert iterations > 12
    monkeypatch.setenv("MARLNB_JOB", str(tmp_path))
    path = tmp_path / "stopped"
    for at in (5, 6, 10):
        with pytest.raises(StoppedError):
            train(experiment, path, resume=True, progress=False, on_report=[stop_at(path, at)])
        assert Run.open(path).status()["reason"] == "SIGUSR1"
        expected = at if savable else at // EVERY * EVERY
        assert Run.open(path).checkpoint().iteration == expected
    stopped = train(experiment, path, resume=True, progress=False)
    assert learned(stopped) == learned(calm)
    for name, policy in calm.policies().items():
        own = stopped.policies()[name].state_dict()
        assert all((own[key] == value).all() for key, value in policy.state_dict().items())


def test_requested_checkpoints_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARLNB_JOB", str(tmp_path))
    path = tmp_path / "run"

    def look(report: Report) -> None:
        if report.iteration == 5:
            (path / "SAVE").touch()

    with pytest.raises(StoppedError):
        train(toy(savable=True), path, resume=True, progress=False, on_report=[look, stop_at(path, 7)])
    assert [(c.iteration, c.at_stop) for c in Run.open(path).checkpoints] == [(4, False), (5, False), (7, True)]
    iterations = [c.iteration for c in train(toy(savable=True), path, resume=True, progress=False).checkpoints]
    assert 5 in iterations and 7 not in iterations


def test_much_work_is_saved_even_where_that_changes_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARLNB_JOB", str(tmp_path))
    monkeypatch.setattr(checkpoint_saver, "MAX_REPEATED_S", 0.0)
    path = tmp_path / "run"
    with pytest.raises(StoppedError):
        train(toy(savable=False), path, resume=True, progress=False, on_report=[stop_at(path, 5)])
    run = Run.open(path)
    assert run.checkpoint().iteration == 5
    assert any("it is reset at iteration 5, which changes what follows" in line for line in run.events())


def test_at_a_notebook_a_stop_is_always_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARLNB_JOB", raising=False)
    path = tmp_path / "run"
    run = train(toy(savable=False), path, progress=False, on_report=[stop_at(path, 5)])
    assert run.checkpoint().iteration == 5

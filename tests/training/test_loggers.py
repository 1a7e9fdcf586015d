from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from marlnb.errors import ConfigError
from marlnb.training.loggers import check_loggers
from marlnb.training.train import resume, train
from tests.training.toys import count_experiment


def test_an_unknown_logger_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="no logger 'tensorbord'; did you mean 'tensorboard'"):
        check_loggers(["tensorbord"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'marlnb\[wandb\]'"):
        check_loggers(["wandb"])


def test_tensorboard_gets_every_number_and_goes_on_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(count_experiment("loggers=[tensorboard]", "frames=64"), tmp_path / "r", progress=False)
    resume(run, frames=128, progress=False)
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    logged = [(event.step, event.value) for event in events.Scalars("learning/a/entropy")]
    rows = run.metrics()
    expected = list(zip(rows["frames"].tolist(), rows["learning/a/entropy"].tolist()))
    assert [step for step, _ in logged] == [32, 64, 96, 128]
    assert logged == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]


def test_wandb_offline_keeps_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = train(count_experiment("loggers=[wandb]", "frames=64"), tmp_path / "r", progress=False)
    assert list((run.path / "wandb").glob("offline-run-*/*.wandb"))


def test_wandb_gets_project_and_entity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "from-the-environment")
    given = []
    init = wandb.init
    monkeypatch.setattr(wandb, "init", lambda **options: given.append(options) or init(**options))
    options = ("wandb_project=thesis", "wandb_entity=our-lab")
    train(count_experiment("loggers=[wandb]", "frames=32", *options), tmp_path / "a", progress=False)
    train(count_experiment("loggers=[wandb]", "frames=32"), tmp_path / "b", progress=False)
    assert [(each["project"], each["entity"]) for each in given] == [
        ("thesis", "our-lab"),
        ("from-the-environment", None),
    ]

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from marlnb.errors import ConfigError
from marlnb.training.control import request
from marlnb.training.reporting.loggers import check_loggers
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer
from tests.training.toys import count_experiment


class FailsAfter:
    """Ends a training run as failed, so that its last iterations are trained again."""

    def __init__(self, frames: int) -> None:
        self.frames = frames

    def begin(self, trainer: Trainer) -> None: ...

    def after_iteration(self, trainer: Trainer) -> None:
        if trainer.frames == self.frames:
            raise RuntimeError(f"after {self.frames} frames")

    def end(self, trainer: Trainer) -> None: ...


def test_an_unknown_logger_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="no logger 'tensorbord'; did you mean 'tensorboard'"):
        check_loggers(["tensorbord"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'marlnb\[wandb\]'"):
        check_loggers(["wandb"])


def test_tensorboard_gets_every_number_and_continues_after_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(count_experiment("loggers=[tensorboard]", "frames=64"), tmp_path / "r", progress=False)
    with pytest.raises(RuntimeError, match="after 128"):
        resume(run, frames=160, progress=False, callbacks=[FailsAfter(128)])
    resume(run, frames=160, progress=False)
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    logged = [(event.step, event.value) for event in events.Scalars("learning/a/entropy")]
    rows = run.metrics()
    expected = list(zip(rows["frames"].tolist(), rows["learning/a/entropy"].tolist()))
    assert [step for step, _ in logged] == [32, 64, 96, 128, 160]
    assert logged == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]


class _FailingAtOnce:
    """A callback that cannot begin, after which a request comes."""

    def begin(self, trainer: Trainer) -> None:
        raise ConfigError("no such site")

    def after_iteration(self, trainer: Trainer) -> None: ...

    def end(self, trainer: Trainer) -> None:
        request(trainer.run.path, "pause")


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_training_that_cannot_start_leaves_nothing_of_its_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ConfigError, match="no such site"):
        train(count_experiment(f"loggers=[{name}]"), tmp_path / "r", progress=False, callbacks=[_FailingAtOnce()])
    assert not (tmp_path / "r").exists()


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


def test_loggers_get_the_numbers_of_every_member_of_a_population(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("WANDB_MODE", "offline")
    words = ("evolution=tournament", "evolution.population=2", "evaluation_episodes=2", "target_group=a", "frames=200")
    run = train(
        count_experiment("loggers=[tensorboard,wandb]", "wandb_project=thesis", *words), tmp_path / "r", progress=False
    )
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert {"learning/member_0/a/entropy", "learning/member_1/a/entropy"} <= set(events.Tags()["scalars"])
    assert list((run.path / "wandb").glob("offline-run-*/*.wandb"))


def test_wandb_without_a_login_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """In a process of its own: wandb keeps the settings of its first run."""
    pytest.importorskip("wandb")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    words = ["env=mpe/simple", "algorithm=ippo", "loggers=[wandb]", "frames=32", "n_envs=2", "run=a"]
    command = [sys.executable, "-m", "marlnb", "train", *words]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**environment, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert ended.returncode == 2 and "No API key configured" in ended.stderr, ended.stderr
    assert "`wandb login`; or set WANDB_MODE=offline, and upload later with `marlnb sync a`" in ended.stderr
    assert not (tmp_path / "a" / "experiment.json").exists()

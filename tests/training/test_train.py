from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from marlnb.cli import main
from marlnb.errors import ConfigError, MarlnbError, RunError
from marlnb.experiment import Experiment
from marlnb.training.reporting.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer
from tests.forked import Forked
from tests.training.toys import count_experiment

REAL = {
    "native": ("env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=4", "rollout_steps=16"),
    "pettingzoo": ("env=pettingzoo/simple_spread", "env.workers=1", "algorithm=ippo", "n_envs=2", "rollout_steps=16"),
}
COMMON = ("algorithm.epochs=2", "threads=1", "checkpoint_every=4")


TRAIN = """
import sys, time, marlnb
hold_at, path, *overrides = sys.argv[1:]
def hold(report):
    time.sleep(1000 if report.iteration == int(hold_at) else 0)
marlnb.train(marlnb.Experiment.compose(*overrides), path, on_report=[hold])
"""


def _start(path: Path, overrides: tuple[str, ...], hold_at: int = 0) -> subprocess.Popen[str]:
    """A training run in a process of its own, which waits after iteration `hold_at`, so that it does not outrun us."""
    words = [sys.executable, "-c", TRAIN, str(hold_at), str(path), *overrides]
    return subprocess.Popen(words, text=True, stderr=subprocess.PIPE)


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | Forked) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, isinstance(process, subprocess.Popen) and process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _rows(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


@pytest.mark.parametrize("kind", REAL)
def test_a_killed_process_resumed_gives_the_same_bits(tmp_path: Path, kind: str) -> None:
    overrides = (*REAL[kind], *COMMON, f"frames={(64 if kind == 'native' else 32) * 14}")
    expected = train(Experiment.compose(*overrides), tmp_path / "whole", progress=False).policies()
    path = tmp_path / "killed"
    process = Forked(TRAIN, 12, path, *overrides[:-1], "frames=1_000_000")
    _wait_until(lambda: _rows(path) >= 6, process)
    process.kill()
    process.wait()
    run = Run.open(path)
    assert run.status()["state"] == "interrupted"
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 7, "fra')  # a line that was being written
    last = run.checkpoint().iteration
    assert 4 <= last <= 12
    # the same experiment but for its length, which nothing else depends on
    frames = (64 if kind == "native" else 32) * 14
    (path / "status.json").unlink()
    run = resume(run, frames=frames, progress=False)
    assert run.metrics()["iteration"].tolist() == list(range(1, 15))
    for name, policy in run.policies().items():
        for key, value in policy.state_dict().items():
            assert torch.equal(value, expected[name].state_dict()[key]), (name, key)


def test_a_terminated_process_ends_saved(tmp_path: Path) -> None:
    path = tmp_path / "r"
    process = _start(path, (*REAL["native"], *COMMON[:2], "checkpoint_every=1000000", "frames=100_000_000"))
    _wait_until(lambda: _rows(path) >= 2, process)
    process.terminate()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0 and "SIGTERM" in errors
    run = Run.open(path)
    assert run.status()["state"] == "stopped"
    assert run.checkpoint().iteration == run.metrics()["iteration"].iloc[-1] >= 2


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP"])
def test_a_signal_ends_training_after_the_iteration(tmp_path: Path, name: str) -> None:
    def send(report: Report) -> None:
        if report.iteration == 2:
            os.kill(os.getpid(), getattr(signal, name))

    run = train(count_experiment(), tmp_path / "r", progress=False, on_report=[send])
    assert run.status()["state"] == "stopped" and run.checkpoint().iteration == 2
    assert any(f"stopping: {name}" in line for line in run.events())
    assert resume(run, progress=False).status()["state"] == "complete"


def test_a_terminal_that_is_closed_does_not_end_a_training_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = train(
            count_experiment("frames=64"),
            tmp_path / "r",
            progress=False,
            on_report=[lambda report: signal.raise_signal(signal.SIGHUP)],
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert run.status()["state"] == "complete"


def test_a_second_interrupt_interrupts_at_once(tmp_path: Path) -> None:
    interrupts = []

    def interrupt(report: object) -> None:
        interrupts.append(report)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(count_experiment(), tmp_path / "r", progress=False, on_report=[interrupt])
    assert len(interrupts) == 1 and signal.getsignal(signal.SIGINT) is before
    assert Run.open(tmp_path / "r").status()["state"] == "stopped"


class _InterruptingStart:
    """A callback during whose `begin` Ctrl-C is pressed."""

    def begin(self, trainer: Trainer) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def after_iteration(self, trainer: Trainer) -> None: ...

    def end(self, trainer: Trainer) -> None: ...


def test_an_interrupt_while_a_training_starts_leaves_everything_as_it_was(tmp_path: Path) -> None:
    experiment, path = count_experiment("frames=64"), tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        train(experiment, path, progress=False, callbacks=[_InterruptingStart()])
    assert not path.exists()
    before = train(experiment, path, progress=False).status()
    with pytest.raises(KeyboardInterrupt):
        resume(path, frames=640, progress=False, callbacks=[_InterruptingStart()])
    assert Run.open(path).status() == before and before["state"] == "complete"
    assert train(experiment, path, resume=True, progress=False).experiment == experiment


def test_train_never_overwrites_and_resumes_the_same_experiment_only(tmp_path: Path) -> None:
    experiment = count_experiment()
    iterations: list[int] = []
    train(experiment, tmp_path / "r", progress=False, on_report=[lambda report: iterations.append(report.iteration)])
    assert iterations == list(range(1, 21))
    with pytest.raises(RunError, match="exists already"):
        train(experiment, tmp_path / "r", progress=False)
    again = train(experiment, tmp_path / "r", resume=True, progress=False, on_report=[lambda r: iterations.append(-1)])
    assert -1 not in iterations and again.status()["state"] == "complete"
    with pytest.raises(RunError, match=r"algorithm\.epochs: 1 there, 3 here; seed: 0 there, 4 here"):
        train(count_experiment("algorithm.epochs=3", "seed=4"), tmp_path / "r", resume=True, progress=False)
    with pytest.raises(RunError, match="needs the run's folder"):
        train(experiment, resume=True)


def test_a_complete_run_is_trained_further_with_more_frames(tmp_path: Path) -> None:
    run = train(count_experiment("frames=320"), tmp_path / "r", progress=False)
    with pytest.raises(ConfigError, match="less than the 320 frames"):
        resume(run, frames=100)
    run = resume(tmp_path / "r", frames=640, progress=False)
    assert run.checkpoint().frames == 640 and Run.open(run.path).experiment.frames == 640
    whole = train(count_experiment(), tmp_path / "whole", progress=False)
    for name, policy in run.policies().items():
        for key, value in policy.state_dict().items():
            assert torch.equal(value, whole.policies()[name].state_dict()[key])


def test_runs_without_a_name_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = count_experiment("frames=32")
    paths = [train(experiment, progress=False).path for _ in range(2)]
    assert paths == [tmp_path / "runs/count-ippo-0-1", tmp_path / "runs/count-ippo-0-2"]


def test_a_run_continues_on_another_device(tmp_path: Path) -> None:
    path = train(count_experiment("frames=64"), tmp_path / "r", progress=False).path
    experiment = path / "experiment.json"
    experiment.write_text(experiment.read_text().replace('"cpu"', '"cuda:99"'))  # as if trained on another machine
    for device in (None, "cuda:98"):
        with pytest.raises(ConfigError, match=r"no device 'cuda:9.'; .*; valid: cpu"):
            resume(path, frames=96, device=device, progress=False)
    with pytest.raises(RunError, match=r"device: cuda:99 there, cpu here; resume\(run, device=...\) changes it"):
        train(count_experiment("frames=64"), path, resume=True, progress=False)
    assert Run.open(path).experiment == count_experiment("frames=64", "device=cuda:99")
    assert main(["resume", str(path), "--frames", "96", "--device", "cpu", "--quiet"]) == 0
    run = Run.open(path)
    assert run.experiment == count_experiment("frames=96") and run.status()["frames"] == 96
    assert any("device changed from cuda:99 to cpu" in line for line in run.events())


def test_the_state_of_another_kind_of_generator_is_left_out(tmp_path: Path) -> None:
    """A GPU's generator has 16 bytes."""
    run = train(count_experiment("frames=64"), tmp_path / "r", progress=False)
    with Trainer.resume(run) as trainer:
        own = trainer.loop.state_dict()["generator"]
        state = run.checkpoint().load() | {"generator": torch.zeros(16, dtype=torch.uint8)}
        trainer.loop.load_state_dict(state, 2)
        assert torch.equal(trainer.loop.state_dict()["generator"], own)
        trainer.loop.advance()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("device=cuda:99", "CUDA devices here; valid: cpu"),
        ("device=toaster", "no device 'toaster'"),
        ("loggers=[paper]", "paper"),
    ],
)
def test_what_cannot_run_is_refused_before_a_folder_is_made(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(count_experiment(override), tmp_path / "r", progress=False)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env=mpe/simple_spread", "env.continuous_actions=true", "algorithm=iql"], "takes discrete"),
        (["env=mpe/simple_spread", "model=cnn"], "reads images"),
        (["env=pettingzoo/custom", "env.entry_point=no_such_module:Env", "env.workers=0"], "cannot import"),
    ],
)
def test_what_cannot_begin_leaves_no_folder(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(MarlnbError, match=message):
        train(Experiment.compose(*overrides), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    job = tmp_path / "job"
    job.mkdir()
    (job / "notebook.ipynb").write_text("{}")
    with pytest.raises(MarlnbError, match=message):
        train(Experiment.compose(*overrides), job, resume=True, progress=False)
    assert [path.name for path in job.iterdir()] == ["notebook.ipynb"]


def test_what_is_no_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be an Experiment.*got dict"):
        train({"env": "mpe/simple_spread"}, tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"overrides are strings.*got 3"):
        Experiment.compose("env=mpe/simple_spread", 3)  # type: ignore[arg-type]

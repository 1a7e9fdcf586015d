"""Simulators in real processes: training continues through kills, interruptions and resumes until it succeeds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.recording.capture.while_training import RecordWhileTraining
from marlnb.recording.file.reader import Recording
from marlnb.training.background import start
from marlnb.training.control import request
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.reporting.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer
from tests.envs.external import matching_simulator

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("matching_simulator.py")
BEST = 4.0  # rounds of an episode, one each for a right answer

Process = subprocess.Popen[bytes]


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def simulator(processes: list[Process], folder: Path, *words: object) -> Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = words or (0,)
    processes.append(subprocess.Popen([sys.executable, str(SCRIPT), str(folder), *map(str, words)], env=environment))
    return processes[-1]


def experiment(*overrides: str) -> Experiment:
    """Two groups, an algorithm for each, two copies."""
    groups = ("signal", "mirror")
    return Experiment.compose(
        "env=external/server",
        *(f"env.groups.{group}.{option}" for group in groups for option in ("observation=[3]", "actions=3")),
        *("env.timeout_s=200", "algorithm=ippo", "algorithms.mirror=mappo", "algorithms.mirror.lr=0.01"),
        *("algorithm.lr=0.01", "algorithm.minibatch_frames=64", "n_envs=2", "rollout_steps=64", "checkpoint_every=4"),
        *overrides,
    )


def test_two_simulators_are_solved_by_two_algorithms_through_a_kill(tmp_path: Path, processes: list[Process]) -> None:
    folder = tmp_path / "run"
    first, second = simulator(processes, folder), simulator(processes, folder)
    killed_at = []

    def kill(report: Report) -> None:
        if report.iteration == 2:
            for process in (first, second):
                process.send_signal(signal.SIGKILL)
                process.wait()
            simulator(processes, folder)  # another pair continues the training
            simulator(processes, folder)
            killed_at.append(report.iteration)

    run = train(
        experiment("frames=12800", "target_return=3.9", "target_group=signal"), folder, progress=False, on_report=[kill]
    )
    metrics = run.metrics()
    assert killed_at == [2] and run.status()["state"] == "complete"
    assert metrics["iteration"].tolist() == list(range(1, len(metrics) + 1))  # none was lost
    assert metrics["recent_returns/signal"].iloc[-1] >= 3.9 and metrics["recent_returns/signal"].iloc[0] < 3
    assert len(metrics) < 100  # 3.9 was reached before the frames ended
    assert [process.wait(120) for process in processes[2:]] == [0, 0]  # they received the end of the training
    assert not (folder / "server.json").exists()

    simulator(processes, folder / "evaluation")  # waits until there is one
    evaluation = evaluate(run, episodes=5, n_envs=1)
    assert evaluation.return_mean == {"signal": BEST, "mirror": BEST} and evaluation.length_mean <= 2 * BEST + 1
    simulator(processes, folder / "evaluation")
    recording = record(run, episodes=3, n_envs=1, progress=False)
    assert len(recording.episodes) == 3
    assert not (folder / "evaluation").exists()
    recording.close()


def test_a_training_without_simulators_continues_when_one_comes(tmp_path: Path, processes: list[Process]) -> None:
    folder = tmp_path / "run"
    simulator(processes, folder, 3)  # leaves after three episodes, in the first rollout

    reports: list[Report] = []
    late_simulator = subprocess.Popen(
        [sys.executable, "-c", LATER, str(SCRIPT), str(folder)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    processes.append(late_simulator)
    run = train(experiment("n_envs=1", "frames=192"), folder, progress=False, on_report=[reports.append])
    assert run.status()["state"] == "complete" and len(reports) == 3
    assert processes[0].wait(120) == 0 and late_simulator.wait(120) == 0


LATER = """
import runpy, sys, time
time.sleep(3)
sys.argv = [sys.argv[1], sys.argv[2], "0"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_interrupted_training_is_resumed_with_new_simulators(tmp_path: Path, processes: list[Process]) -> None:
    folder = tmp_path / "run"
    simulators = [simulator(processes, folder), simulator(processes, folder)]

    def interrupt(report: Report) -> None:
        if report.iteration == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(experiment("frames=1280"), folder, progress=False, on_report=[interrupt])
    assert [process.wait(120) for process in simulators] == [0, 0]
    assert [checkpoint.iteration for checkpoint in Run.open(folder).checkpoints][-1] in (4, 6)
    simulator(processes, folder)
    simulator(processes, folder)
    run = resume(folder, progress=False)
    metrics = run.metrics()
    assert run.status()["state"] == "complete"
    assert metrics["iteration"].tolist() == list(range(1, 11))
    assert metrics["recent_returns/signal"].iloc[-1] > metrics["recent_returns/signal"].iloc[0]
    assert not (folder / "server.json").exists()


def test_evaluations_listen_next_to_a_fixed_address(tmp_path: Path, processes: list[Process]) -> None:
    """Those of the training at one, and one that is requested meanwhile at another."""
    address, file = f"unix:{tmp_path / 's'}", tmp_path / "where.json"
    simulators = [simulator(processes, file), simulator(processes, tmp_path / "where.evaluation.json")]
    third = str(tmp_path / "where.evaluation-2.json")
    threading.Thread(target=matching_simulator.main, args=(third, 0, 0.0), daemon=True).start()
    addresses: list[str] = []

    def evaluate_too(report: Report) -> None:
        addresses.append(json.loads(file.read_text())["address"])
        if report.iteration == 1:
            assert evaluate(tmp_path / "run", episodes=1, n_envs=1).episodes == 1

    run = train(
        experiment(
            *(f"env.address={address}", f"env.address_file={file}", "n_envs=1", "frames=128"),
            *("evaluate_every=1", "evaluation_episodes=2", "checkpoint_every=1"),
        ),
        tmp_path / "run",
        progress=False,
        on_report=[evaluate_too],
    )
    assert run.status()["state"] == "complete" and len(run.evaluations()) == 2 and addresses == [address] * 2
    assert [process.wait(120) for process in simulators] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("request_of", ["SIGTERM", "a file"])
def test_a_training_stops_saved_while_an_evaluation_waits(
    tmp_path: Path, processes: list[Process], request_of: str
) -> None:
    folder = tmp_path / "run"
    simulator(processes, folder)  # none for the evaluation

    def stop() -> None:
        while not (folder / "evaluation" / "server.json").exists():
            time.sleep(0.05)
        if request_of == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            request(folder, "stop", "a file")

    threading.Thread(target=stop, daemon=True).start()
    run = train(experiment("n_envs=1", "frames=1280", "evaluate_every=2"), folder, progress=False)
    assert run.status()["state"] == "stopped" and run.status()["reason"] == request_of
    assert [checkpoint.iteration for checkpoint in run.checkpoints] == [2] and not run.evaluations()


class StopSoon:
    """Requests a stop of the training while later callbacks are called after an iteration."""

    def __init__(self, iteration: int, request_of: str) -> None:
        self.iteration, self.request_of = iteration, request_of

    def begin(self, trainer: Trainer) -> None:
        self.after_iteration(trainer)

    def after_iteration(self, trainer: Trainer) -> None:
        if trainer.iteration == self.iteration:
            threading.Thread(target=self._stop, args=(trainer.run.path,), daemon=True).start()

    def _stop(self, run: Path) -> None:
        while not (run / "evaluation" / "server.json").exists():
            time.sleep(0.01)
        if self.request_of == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            request(run, "stop", self.request_of)

    def end(self, trainer: Trainer) -> None:
        pass


@pytest.mark.parametrize(("iteration", "request_of"), [(2, "SIGTERM"), (0, "a file")])
def test_a_training_stops_saved_while_a_recording_waits(tmp_path: Path, iteration: int, request_of: str) -> None:
    folder = tmp_path / "run"
    for path in (folder, folder / "evaluation")[: 2 if iteration else 0]:  # the recording's plays the first one alone
        threading.Thread(target=matching_simulator.main, args=(str(path), 0, 0.0), daemon=True).start()
    callbacks = [
        StopSoon(iteration, request_of),
        RecordWhileTraining(every_iterations=2, episodes=1, n_envs=1, sites=[]),
    ]
    run = train(experiment("n_envs=1", "rollout_steps=16", "frames=160"), folder, progress=False, callbacks=callbacks)
    assert run.status()["state"] == "stopped" and run.status()["reason"] == request_of
    assert [checkpoint.iteration for checkpoint in run.checkpoints] == [iteration] * bool(iteration)
    assert any("RecordWhileTraining was interrupted" in line for line in run.events())
    assert not (folder / "evaluation").exists() and not (folder / "STOP").exists()
    if iteration:
        with Recording.open(run.recordings["training"]) as recording:
            assert recording.checkpoints["iteration"].tolist() == [0]


def test_a_training_stops_while_it_waits_for_its_first_simulator(tmp_path: Path) -> None:
    training = start(experiment("n_envs=1", "frames=1280"), tmp_path / "run")
    while training.run.status()["state"] != "running":
        time.sleep(0.05)
    time.sleep(1)  # it waits by now
    training.stop()
    run = training.wait(60)
    assert run.status()["state"] == "stopped" and run.status()["reason"] == "the file STOP"
    assert not (run.path / "STOP").exists()


def test_the_client_needs_numpy_only_and_can_be_copied(tmp_path: Path) -> None:
    code = (
        "import sys, marlnb.client; "
        "heavy = {'torch', 'hydra', 'omegaconf', 'gymnasium', 'pandas', 'marlnb.config', 'marlnb.errors'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
    shutil.copytree(ROOT / "marlnb" / "client", tmp_path / "their_client", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import sys, their_client; sys.exit('marlnb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0

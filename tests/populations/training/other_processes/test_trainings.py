"""Leagues in several processes, which meet through files alone: none waits, and each training run can be replayed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from marlnb.cli import main
from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer

PLAYERS = ("main_0", "main_exploiter_0", "league_exploiter_0")
WORDS = (
    *("env=tests.populations.training.games:RockPaperScissors", "league=alphastar", "league.league_exploiter.count=1"),
    *("league.main.snapshot_frames=128", "league.main_exploiter.snapshot_frames=192", "league.min_games=2"),
    *("algorithm=ippo", "algorithm.epochs=1", "n_envs=4", "rollout_steps=16", "checkpoint_every=4"),
)


def _experiment(player: str, *words: str) -> Experiment:
    return Experiment.compose(*WORDS, f"league.learner={player}", *words)


def _same_training(a: Run, b: Run) -> None:
    for name in ("matches.jsonl", "players.jsonl", "received.jsonl"):
        assert (a.path / "league" / name).read_text() == (b.path / "league" / name).read_text(), name
    ours, theirs = (run.policies()["player"].state_dict() for run in (a, b))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def _replay(run: Run, folder: Path) -> Run:
    """Trains again, in an empty folder, with nothing but the log of what was read and the snapshots of the others."""
    (folder / "league").mkdir(parents=True)
    shutil.copy(run.path / "experiment.json", folder)
    shutil.copy(run.path / "league" / "received.jsonl", folder / "league")
    shutil.copytree(run.path / "league" / "snapshots", folder / "league" / "snapshots")
    return resume(folder, progress=False)


def test_processes_meet_through_files_and_each_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    folder = tmp_path / "league"
    words = (*WORDS, f"league.learner={','.join(PLAYERS[:2])}", "frames=512", f"run={folder}")
    command = (sys.executable, "-m", "marlnb", "train", *words, "--quiet")
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    for player in PLAYERS[:2]:
        run = Run.open(folder / f"league.learner={player}")
        assert (run.path / "output.log").is_file()  # each had a process, so that they could meet
        league = run.league
        assert league.counts()[player] and {match.learner for match in league.matches()} <= set(PLAYERS)
        received = [json.loads(line) for line in (league.folder / "received.jsonl").read_text().splitlines()]
        assert [row["round"] for row in received] == list(range(8))
        assert league["main_0@0"].policies() and league["main_0"].matches
        _same_training(run, _replay(run, tmp_path / "replays" / player / "run"))


def test_a_lost_training_delays_no_other_and_resumes_from_its_log(tmp_path: Path) -> None:
    folders = {player: tmp_path / player for player in PLAYERS[:2]}
    trainers = {name: _start(name, path) for name, path in folders.items()}
    for _ in range(7):
        for trainer in trainers.values():
            next(trainer)
    lost = trainers["main_exploiter_0"]
    lost._saver.iteration = lost.iteration  # as a kill would: nothing is saved at the end
    lost.close()
    for _ in range(3):
        next(trainers["main_0"])  # the other continues, and meets the lost one's last weights
    trainers["main_0"].close()
    main_0 = Run.open(folders["main_0"]).league
    assert {match.learner for match in main_0.matches()} == set(PLAYERS[:2])
    before = (folders["main_exploiter_0"] / "league" / "received.jsonl").read_text()
    resumed = resume(folders["main_exploiter_0"], progress=False)
    after = (folders["main_exploiter_0"] / "league" / "received.jsonl").read_text()
    assert after.startswith(before) and resumed.status()["state"] == "complete"
    _same_training(resumed, _replay(resumed, tmp_path / "replays" / "run"))


def _start(player: str, path: Path) -> Trainer:
    experiment = _experiment(player, "frames=640")
    return Trainer(experiment, Run.create(path, experiment))


def test_wrong_players(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"no player 'main_1' in league\.learner; did you mean 'main_0'"):
        train(_experiment("main_1", "frames=64"), tmp_path / "main_1", progress=False)
    train(_experiment("main_0", "frames=64"), tmp_path / "one", progress=False)
    with pytest.raises(ConfigError, match="both train the player 'main_0' of one league"):
        train(_experiment("main_0", "frames=64"), tmp_path / "two", progress=False)
    assert main(["info", str(tmp_path / "one")]) == 0
    assert "main_0" in capsys.readouterr().out

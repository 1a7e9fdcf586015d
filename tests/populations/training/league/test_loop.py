"""Leagues that train: resuming, what is learned from, different algorithms, and errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.algorithms.rollout import Rollout
from marlnb.analysis.populations.best_response import best_response
from marlnb.cli import main
from marlnb.errors import CheckpointError, ConfigError
from marlnb.experiment import Experiment
from marlnb.populations.training.league.match_policy import HOME_CELLS, MatchPolicy
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.populations.training.nested import values

SMALL = ("algorithm=ippo", "algorithm.epochs=1", "n_envs=4", "rollout_steps=16", "keep_checkpoints=0")
TAG = ("env=mpe/simple_tag", "league=alphastar", *SMALL)
RPS = ("env=tests.populations.training.games:RockPaperScissors", "league=alphastar", *SMALL)
TICTACTOE = ("env=pettingzoo/tictactoe", "env.workers=1", *TAG[1:], "league.league_exploiter.count=0")
REPLAY = ("learning_starts=0", "updates=1", "batch_size=8", "buffer_frames=200")


def _result(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    files = {name: (path / "league" / name).read_text() for name in ("matches.jsonl", "players.jsonl")}
    state = dict(values(Run.open(path).checkpoint().load()))
    return files, {key: value for key, value in state.items() if "seconds" not in key}


def _train(experiment: Experiment, path: Path, kill_at: int | None = None) -> Path:
    trainer = Trainer(experiment, Run.create(path, experiment))
    if kill_at is not None:
        for _ in range(kill_at):
            next(trainer)
        trainer._saver.iteration = trainer.iteration  # as a kill would: nothing is saved at the end
        trainer.close()
        trainer = Trainer.resume(Run.open(path))
        assert 0 < trainer.iteration < kill_at
    with trainer:
        for _ in trainer:
            pass
    return path


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("overrides", [TAG, RPS, TICTACTOE], ids=["tag", "rps", "ttt"])
def test_a_killed_league_continues_with_the_same_bits(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    experiment = Experiment.compose(*overrides, "frames=1152", "checkpoint_every=5")  # 18 turns
    files, state = _result(_train(experiment, tmp_path / "whole"))
    resumed_files, resumed_state = _result(_train(experiment, tmp_path / "killed", kill_at=13))
    assert len(files["matches.jsonl"].splitlines()) > 8 and files == resumed_files
    assert state.keys() == resumed_state.keys()
    for key, value in state.items():
        other = resumed_state[key]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, key


def test_a_league_says_once_that_it_is_not_captured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment.compose(*RPS, "frames=64", "cuda_graphs=true")
    Trainer(experiment, Run.create(tmp_path / "r", experiment)).close()
    error = capfd.readouterr().err
    assert error.count("not captured") == 1 and "a league is not captured as a CUDA graph" in error


def test_what_opponents_see_and_do_does_not_enter_the_update(tmp_path: Path) -> None:
    """Two equal training runs; in one the opponents' cells are overwritten before the update."""
    experiment = Experiment.compose(*RPS, "frames=64")
    weights = []
    for name in ("as it is", "overwritten"):
        with Trainer(experiment, Run.create(tmp_path / name, experiment)) as trainer:
            part = trainer.loop._players.by_id["main_0"]
            if name == "overwritten":
                collect = part.loop._collector.collect

                def overwritten(collect: Callable[[], Rollout] = collect) -> Rollout:
                    rollout = collect()
                    others = ~rollout["player", HOME_CELLS]
                    assert bool(others.any()) and not bool(others.all())
                    rollout["player", "observation"][others] += 100.0
                    rollout["next", "player", "observation"][others] -= 50.0
                    rollout["player", "action"][others] = 0
                    rollout["next", "player", "reward"][others] = 7.0
                    return rollout

                part.loop._collector.collect = overwritten
            next(trainer)
            weights.append(part.weights()["player"])
    for key, value in weights[0].items():
        assert torch.equal(value, weights[1][key]), key


def test_players_with_different_algorithms_and_networks_meet(tmp_path: Path) -> None:
    overrides = ("algorithms.main_exploiter=iql", "+algorithms.main_exploiter.learning_starts=0", "models.main=gru")
    experiment = Experiment.compose(*RPS, "env.steps=3", *overrides, "frames=1024")
    run = Run.open(_train(experiment, tmp_path / "run"))
    pairs = {frozenset(match.players.values()) for match in run.league.matches()}
    assert frozenset(("main_0", "main_exploiter_0")) in pairs
    kinds = {name: type(player.policies()["player"]).__name__ for name, player in run.league.players.items()}
    assert kinds["main_0"] == "ActorCritic" and kinds["main_exploiter_0"] == "QPolicy"
    assert run.policies()["player"].recurrent_shape is not None  # the run's own policy is that of main_0


def test_critics_of_actions_read_their_own_team(tmp_path: Path) -> None:
    """Who plays the other team changes from match to match. Outside a league they read both teams."""
    words = ("env=mpe/simple_tag", "model.hidden=[4]", "n_envs=2", "rollout_steps=25", "frames=100", "tuned=false")
    options = (f"algorithms.{group}.{option}" for group in ("adversary", "agent") for option in REPLAY)
    words = (*words, "algorithms.adversary=maddpg", "algorithms.agent=masac", *options)
    league = Run.open(_train(Experiment.compose(*words, "league=pfsp"), tmp_path / "run")).league
    chasers = league["adversary_main_0"].policies()["adversary"]
    assert chasers.critic.reads == ("adversary",) and chasers.group.n_agents == 3
    assert league["agent_main_0"].policies()["agent"].critic.reads == ("agent",)
    before = league["adversary_main_0@0"].policies()["adversary"]
    for part in ("actor", "critic"):
        old, new = (list(getattr(policy, part).parameters()) for policy in (before, chasers))
        assert any(not torch.equal(a, b) for a, b in zip(old, new)), part
    run = Run.open(_train(Experiment.compose(*words), tmp_path / "all"))
    assert run.policies()["agent"].critic.reads == ("adversary", "agent")
    fixed = best_response(run, env_steps=50, side="agent", episodes=2, progress=False).run.league["fixed"]
    ours, theirs = (policy.actor.state_dict() for policy in (fixed.policies()["agent"], run.policies()["agent"]))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_the_files_of_a_run_show_its_league(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.open(_train(Experiment.compose(*TAG, "frames=1152"), tmp_path / "run"))
    league = run.league
    snapshot = next(iter(league.players.values())).snapshots[0]
    policies = snapshot.policies()
    assert set(policies) == {"adversary", "agent"} and snapshot.origin().sha256 == snapshot.player.checkpoint
    assert not any(isinstance(policy, MatchPolicy) for policy in policies.values())
    table = league.payoff()
    assert np.all(table.win_rates + table.win_rates.T == pytest.approx(1.0))
    assert sum(sum(kinds.values()) for kinds in league.counts().values()) == len(league.matches())
    shown = league.summary().to_json()
    frames = {row["player"]: row["frames"] for row in shown["players"]}
    assert sum(frames.values()) == 1152
    counted = {name: {kind: n for kind, n in kinds.items() if n} for name, kinds in shown["matches"].items()}
    assert counted == league.counts()
    assert league.ratings().players == table.players
    assert repr(league) in _printed(capsys, "info", str(run.path))
    assert json.loads(_printed(capsys, "info", str(run.path), "--json"))["league"] == shown


def test_fixed_players_of_another_run_come_first(tmp_path: Path) -> None:
    """Shown are the returns of groups for which a player learns; the first that learns has the caller's envs."""
    words = ("env=mpe/simple_tag", "env.max_cycles=4", "model.hidden=[4]", *SMALL)
    old = mnb.train(Experiment.compose(*words, "frames=64"), tmp_path / "old", progress=False)
    taught = (*words, "league=tests.populations.training.league.taught_league:Taught", f"league.run={old.path}")
    for options, groups in (((), {"adversary", "agent"}), (("league.only_taught=adversary",), {"agent"})):
        experiment = Experiment.compose(*taught, *options, "frames=256")
        with Trainer(experiment, Run.create(tmp_path / "-".join(sorted(groups)), experiment)) as trainer:
            for _ in trainer:
                pass
            env, pupils = trainer.loop.env, [p for p in trainer.loop._players.by_id.values() if p.player.learning]
            assert set(trainer.run.status()["scores"]["exploring"]) == groups
            assert trainer.loop.episodes.recent_returns["agent"] == pupils[-1].loop.episodes.recent_returns["agent"]
            assert env is pupils[0].env and env.env is trainer.loop._players._first_env


def test_a_missing_snapshot_is_named(tmp_path: Path) -> None:
    experiment = Experiment.compose(*TAG, "frames=1152", "checkpoint_every=5")
    run = Run.open(_train(experiment, tmp_path / "run"))
    snapshot = next(iter(run.league.players.values())).snapshots[-1]
    shutil.rmtree(run.path / "league" / "snapshots" / snapshot.player.checkpoint)
    with pytest.raises(CheckpointError, match=f"the snapshot {snapshot.id} is missing"):
        snapshot.policies()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("env=mpe/simple_spread", "league=alphastar", "league.sides=groups"), "needs two sides"),
        ((*RPS, "algorithms.main_0x=iql"), "main_0x"),
        ((*RPS[:-4], "algorithm=vdn"), "play against each other"),
        (
            (*RPS, "algorithms.main_exploiter=iql", "algorithms.main_exploiter.learning_starts=60_000"),
            "iql for 'main_exploiter' would learn nothing.*200,000 .*, 49,984 for each of 4 players",
        ),
    ],
)
def test_a_league_that_cannot_be_trained_says_why(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    experiment = Experiment.compose(*overrides, "frames=200000")
    with pytest.raises(ConfigError, match=message):
        Trainer(experiment, Run.create(tmp_path / "run", experiment))
    assert not (tmp_path / "run" / "league").exists()


def test_a_cooperative_environment_raises_an_error(tmp_path: Path) -> None:
    experiment = Experiment.compose("env=matrix/climbing", "league=alphastar", *SMALL, "frames=4096")
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        with pytest.raises(ConfigError, match="cooperative"):
            list(trainer)

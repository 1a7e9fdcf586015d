"""When a concept became decodable along a player's snapshots: planted ones, and the disc game's hidden angle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import marlnb as mnb
from marlnb import plots
from marlnb.populations.league.player_log import PLAYERS
from marlnb.populations.run_league import RunLeague
from marlnb.populations.training.snapshots import SnapshotStore

GAME = (
    *("env=tests.populations.training.games:RockPaperScissors", "env.steps=6", "league=self_play", "algorithm=ippo"),
    *("algorithm.epochs=1", "n_envs=4", "rollout_steps=12", "frames=192", "model.hidden=[4]", "league.decay=0.9"),
)
DISC = (
    *("env=game/disc", "env.strength=2", "league=self_play", "algorithm=ippo", "model.hidden=[32]", "tuned=false"),
    *("algorithm.lr=1e-2", "algorithm.gamma=0", "algorithm.minibatch_frames=512", "n_envs=256", "rollout_steps=8"),
)
FIRST, SEES_STEP_FROM = 10, 2  # numbers of the planted snapshots start at 10; from the third on, a unit is the step


def _plant(run: mnb.Run) -> RunLeague:
    """Four snapshots whose only active unit is tanh(50 t), whether the episode has begun, and later tanh(t / 10)."""
    league = run.league
    (player,) = league.players.values()
    weights = {name: policy.state_dict() for name, policy in player.policies().items()}
    store = SnapshotStore(league.folder, run.spec)
    with open(league.folder / PLAYERS, "a", encoding="utf-8") as file:
        for number in range(4):
            planted = {name: tensor.clone() for name, tensor in weights["player"].items()}
            first = next(name for name in planted if name.startswith("actor.") and planted[name].shape[-2:] == (4, 2))
            planted[first].zero_()
            planted[first][..., 0, 0] = 0.1 if number >= SEES_STEP_FROM else 50.0  # features: the step and the seat
            frames = number * run.experiment.iteration_frames
            sha256 = store.write(player.id, frames, {"player": planted})
            row = {"event": "snapshot", "player": f"{player.id}@{FIRST + number}", "round": number, "frames": frames}
            facts = {"role": player.player.role, "parent": player.id, "checkpoint": sha256}
            file.write(json.dumps({**row, **facts}) + "\n")
    return league


def test_a_concept_appears_at_the_snapshot_in_which_it_was_planted(tmp_path: Path) -> None:
    run = mnb.train(mnb.Experiment.compose(*GAME), tmp_path / "run", progress=False)
    (player,) = _plant(run).players.values()
    recordings = [mnb.record(each, episodes=20, explore=True, progress=False) for each in player.snapshots[-4:]]
    result = mnb.development(recordings, label="t", sites=["player/actor/hidden_1"], agents=["player_0"], n_shuffles=2)
    assert result.iterations.tolist() == [0, 1, 2, 3]
    before, after = np.split(result.values[0], [SEES_STEP_FROM])
    # balanced accuracy of six steps: the first differs from the others, and one of these is always guessed: 2 / 6
    assert np.allclose(before, 2 / 6) and (after > 0.6).all() and np.isfinite(result.untrained).all()
    ax = plots.development_curves(result)
    assert ax.lines[0].get_ydata().tolist() == result.values[0].tolist()


def test_players_of_the_disc_game_learn_the_hidden_angle(tmp_path: Path) -> None:
    """Its cosine decides who wins, and is a product of what is observed: cos(u + v) = cos u cos v - sin u sin v."""
    run = mnb.train(mnb.Experiment.compose(*DISC, "frames=20_480"), tmp_path / "run", progress=False)
    snapshots = run.league["main_0"].snapshots
    first_and_last = [snapshots[0], snapshots[-1]]
    recordings = [mnb.record(each, episodes=300, explore=True, progress=False) for each in first_and_last]
    options = {"sites": ["player/actor/hidden_1"], "agents": ["player_0"], "n_shuffles": 1}
    result = mnb.development(recordings, label="hidden_cos", **options)  # type: ignore[arg-type]
    assert result.values[0] == pytest.approx([0.0, 1.0], abs=0.1)  # R^2
    assert result.untrained == pytest.approx(0.0, abs=0.1)

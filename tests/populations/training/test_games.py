"""Leagues in every kind of environment with sides that compete: who has which side, and that players learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import marlnb as mnb

SMALL = (
    *("league=alphastar", "league.league_exploiter.count=0", "league.main.snapshot_frames=64", "algorithm=ippo"),
    *("algorithm.epochs=1", "model.hidden=[4]", "tuned=false", "n_envs=2", "rollout_steps=32", "keep_checkpoints=0"),
)
SEATS = ("player_0", "player_1")
HAS_OPENSPIEL = importlib.util.find_spec("pyspiel") is not None
GAMES = [
    pytest.param("pettingzoo/connect_four env.workers=0", SEATS, id="connect_four"),
    pytest.param("pettingzoo/leduc_holdem env.workers=0", SEATS, id="leduc_holdem"),
    pytest.param("mpe/simple_push", ("adversary", "agent"), id="simple_push"),
    pytest.param("mpe/simple_adversary", ("adversary", "agent"), id="one against a team"),
    pytest.param("mpe/simple_tag groups={hunters:[adversary_0,adversary_1,adversary_2],prey:[agent_0]}",
                 ("hunters", "prey"), id="teams of the user"),
    pytest.param("mpe/simple_world_comm", ("leadadversary", "adversary", "agent"), id="three sides"),
    pytest.param("tree/biased_rps", SEATS, id="matrix game"),
    pytest.param("tree/openspiel env.game=kuhn_poker", SEATS, id="openspiel",
                 marks=pytest.mark.skipif(not HAS_OPENSPIEL, reason="OpenSpiel is not installed")),
]  # fmt: skip


@pytest.mark.parametrize(("env", "sides"), GAMES)
def test_a_league_in_every_kind_of_game(tmp_path: Path, env: str, sides: tuple[str, ...]) -> None:
    symmetric = sides == SEATS
    players = [side + "_main_0" for side in sides] if not symmetric else ["main_0"]
    n_players = 2 * len(players)  # a main and a main exploiter for each side with players of its own
    experiment = mnb.Experiment.compose(*f"env={env}".split(), *SMALL, f"frames={2 * 64 * n_players}")
    league = mnb.train(experiment, tmp_path / "run", progress=False).league
    assert [side.name for side in league.sides] == list(sides)
    assert [name for name in league.players if "exploiter" not in name] == players
    matches = league.matches()
    assert {match.learner for match in matches} == set(league.players)
    for match in matches:
        assert list(match.players) == list(sides) and sum(match.outcomes) == pytest.approx(1.0)
        for side, name in match.players.items():
            assert symmetric or name.startswith(f"{side}_")
    if symmetric:
        seats = {side for match in matches for side, name in match.players.items() if name == "main_exploiter_0"}
        assert seats == set(sides)
    for name in players:
        group = league.run.spec.group_names[0] if symmetric else name.removesuffix("_main_0")
        first, last = (league[f"{name}@{k}"].policies()[group].state_dict() for k in (0, 2))
        assert any(not value.equal(last[key]) for key, value in first.items())

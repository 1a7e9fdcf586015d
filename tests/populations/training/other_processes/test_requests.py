"""Users freeze and retire players of a league that trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.errors import RunError
from marlnb.experiment import Experiment
from marlnb.populations.training.other_processes.requests import REQUESTS, pending_requests, request_of_player
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.populations.training.league.test_loop import RPS, _result

REQUESTED_AT, KILLED_AT = 6, 9  # turns; a round has 4, so the request is carried out after turn 8; checkpoints at 5, 10


def _train(path: Path, *, is_killed: bool) -> Path:
    experiment = Experiment.compose(*RPS, "frames=1152", "checkpoint_every=5")
    trainer = Trainer(experiment, Run.create(path, experiment))
    for turn in range(KILLED_AT):
        if turn == REQUESTED_AT:
            Run.open(path).league.freeze("league_exploiter_1", "it wins too often")
        next(trainer)
    if is_killed:
        trainer._saver.iteration = trainer.iteration  # as a kill would: nothing is saved at the end
        trainer.close()
        trainer = Trainer.resume(Run.open(path))
        assert trainer.iteration < REQUESTED_AT
    with trainer:
        for _ in trainer:
            pass
    return path


def test_a_player_is_frozen_at_the_end_of_the_round_also_after_a_kill(tmp_path: Path) -> None:
    files, state = _result(_train(tmp_path / "whole", is_killed=False))
    league = Run.open(tmp_path / "whole").league
    (event,) = [event for event in league.events() if event.event == "frozen"]
    assert (event.player, event.round, event.reason) == ("league_exploiter_1", 1, "it wins too often")
    assert league["league_exploiter_1"].policies() and league.pending_requests() == []
    last = max(match.round for match in league.matches())
    assert any("league_exploiter_1" in match.players.values() for match in league.matches() if match.round == last)
    assert not any(match.learner == "league_exploiter_1" for match in league.matches() if match.round > 1)
    killed_files, killed_state = _result(_train(tmp_path / "killed", is_killed=True))
    assert files == killed_files
    for key, value in state.items():
        assert str(value) == str(killed_state[key]), key


def test_a_request_that_is_carried_out_while_it_is_read_is_none(tmp_path: Path) -> None:
    request_of_player(tmp_path, "freeze", "main_0")
    (tmp_path / REQUESTS / "0.json").symlink_to("deleted.json")  # listed, but not there any more
    assert [request.player for request in pending_requests(tmp_path).values()] == ["main_0"]
    (tmp_path / REQUESTS / "1.json").write_text("{")
    with pytest.raises(RunError, match=r"1\.json"):
        pending_requests(tmp_path)


def test_a_league_that_could_not_go_on_refuses(tmp_path: Path) -> None:
    experiment = Experiment.compose(*RPS, "frames=512")
    run = Run.create(tmp_path / "run", experiment)
    with Trainer(experiment, run) as trainer:
        next(trainer)
        run.league.retire("main_0")
        for _ in trainer:
            pass
    assert "main_0" in run.league.players and run.league["main_0"].player.learning
    assert "retire main_0 was refused" in run.events()[1] and "there is no opponent" in run.events()[1]
    with pytest.raises(RunError, match=r"no player to freeze 'main_0@0' in"):
        run.league.freeze("main_0@0")

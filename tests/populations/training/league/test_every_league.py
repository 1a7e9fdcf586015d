"""Every registered league trains: its matches are those that its draws answer, and its table is that of its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES
from marlnb.populations.league.draws import draw_match
from marlnb.populations.run_league import RunLeague
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer
from tests.populations.training.league.test_loop import RPS, SMALL

ALPHASTAR = "alphastar league.main.snapshot_frames=64 league.main_exploiter.snapshot_frames=128 league.min_games=1"
PSRO = [f"psro league.oracle_frames=64 league.solver={solver}" for solver in ("nash", "alpha_rank")]
OTHERS = sorted(set(LEAGUES.names()) - {"alphastar", "psro", "best_response"})  # a best response needs another run
EVERY_LEAGUE = [ALPHASTAR, *PSRO, *(f"{name} league.snapshot_frames=64" for name in OTHERS)]
N_ROUNDS = 4


@pytest.mark.parametrize("league", EVERY_LEAGUE, ids=lambda words: f"{words.split()[0]} {words.rpartition('=')[2]}")
def test_each_match_is_the_draw_of_its_number_and_of_the_table_of_its_round(tmp_path: Path, league: str) -> None:
    n_learners = 4 if league == ALPHASTAR else 1
    words = (*SMALL, "model.hidden=[4]", f"frames={N_ROUNDS * n_learners * 64}")
    experiment = Experiment.compose(RPS[0], *f"league={league}".split(), *words)
    assert experiment.league is not None
    with Trainer(experiment, Run.create(tmp_path / "run", experiment)) as trainer:
        files, states = RunLeague(trainer.run), [trainer.loop.league]  # type: ignore[attr-defined]
        for _ in trainer:
            state = trainer.loop.league  # type: ignore[attr-defined]
            if state.round == len(states):
                names = tuple(state.players)
                assert np.array_equal(files.payoff().block(names, names), state.payoff.block(names, names))
                states.append(state)
    matches = files.matches()
    assert len(states) == N_ROUNDS + 1 and {match.round for match in matches} == set(range(N_ROUNDS))
    for match in matches:
        drawn = draw_match(experiment.league, states[match.round], match.learner, match.number, experiment.seed)
        assert (match.kind, dict(match.players)) == (drawn.kind, drawn.players)
    (main, *_) = files.players.values()
    assert len(main.snapshots) == len(states)  # one from the beginning, and one of each round

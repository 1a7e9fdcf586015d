"""A builder's decisions during a run: players join up to `max_players`, freeze and retire, also after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES
from marlnb.models.policies.policy import Policy
from marlnb.training.runs.run import Run
from tests.populations.training.league.test_loop import SMALL, _result, _train

NAME = "tests.populations.training.league.growing_league:Growing"
WORDS = ("env=tests.populations.training.games:RockPaperScissors", f"league={NAME}", *SMALL)
TURNS = 2 + 3 + 3 + 4 + 4  # of rounds 0 to 4: a player joins after each of the first three; one is frozen after round 1


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """The league has a name; forgotten afterwards, so that other tests do not see it."""
    LEAGUES.get(NAME)
    yield
    LEAGUES._members.pop(NAME)


def _weights(policies: dict[str, Policy]) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in policies["player"].state_dict().values()])


def test_players_join_freeze_and_retire_with_the_same_bits_after_a_kill(tmp_path: Path) -> None:
    experiment = Experiment.compose(*WORDS, f"frames={64 * TURNS}", "checkpoint_every=6", "league.max_players=10")
    files, state = _result(_train(experiment, tmp_path / "whole"))
    league = Run.open(tmp_path / "whole").league
    happened = [(event.round, event.event, event.player) for event in league.events() if event.round >= 0]
    joins = [
        [(k, "snapshot", f"player_0@{k}"), (k, "added", f"added_{k}"), (k, "snapshot", f"added_{k}@0")]
        for k in range(3)
    ]
    # 2 players, then 5, 8 and 10: after round 3 there is no place for another snapshot, nor for what would follow
    assert happened == [*joins[0], (1, "frozen", "player_1"), *joins[1], (2, "retired", "player_1"), *joins[2]]
    assert len(league.history.playing) == 10
    weights = {name: _weights(league[name].policies()) for name in ("player_0@0", "added_0@0", "added_0")}
    assert torch.equal(weights["player_0@0"], weights["added_0@0"])  # a copy of its parent, which has learned since
    assert not torch.equal(weights["player_0@0"], weights["added_0"])
    fresh, parent = (_weights(league[name].policies()) for name in ("added_2@0", "player_0@2"))
    assert not torch.equal(fresh, parent)
    of_round = [[match for match in league.matches() if match.round == k] for k in range(5)]
    assert [{match.learner for match in matches} for matches in of_round] == [
        {"player_0", "player_1"},
        {"player_0", "player_1", "added_0"},
        {"player_0", "added_0", "added_1"},
        *[{"player_0", "added_0", "added_1", "added_2"}] * 2,
    ]
    met = ["player_1" in {name for match in matches for name in match.players.values()} for matches in of_round]
    assert met == [True, True, True, False, False]
    killed_files, killed_state = _result(_train(experiment, tmp_path / "killed", kill_at=11))
    assert files == killed_files and state.keys() == killed_state.keys()
    for key, value in state.items():
        other = killed_state[key]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, key

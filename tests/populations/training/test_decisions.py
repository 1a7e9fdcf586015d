"""A builder's decisions during a run: players join up to `max_players`, freeze and retire, also after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from marlnb.errors import ConfigError
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES
from marlnb.models.policies.policy import Policy
from marlnb.training.runs.run import Run
from tests.populations.training.league.test_loop import SMALL, _result, _train

NAME = "tests.populations.training.league.growing_league:Growing"
UNANIMOUS = "tests.populations.training.league.unanimous_league:Unanimous"
GAME = ("env=tests.populations.training.games:RockPaperScissors", *SMALL)
WORDS = (*GAME, f"league={NAME}")
TURNS = 2 + 3 + 3 + 4 + 4  # of rounds 0 to 4: a player joins after each of the first three; one is frozen after round 1


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """The leagues have names; forgotten afterwards, so that other tests do not see them."""
    names = (NAME, UNANIMOUS)
    for name in names:
        LEAGUES.get(name)
    yield
    for name in names:
        LEAGUES._members.pop(name)


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


def _unanimous(path: Path, *words: str) -> list[tuple[str, str]]:
    """What happens in a league whose players all decide the same after the first of two rounds."""
    _train(Experiment.compose(*GAME, f"league={UNANIMOUS}", "frames=384", *words), path)
    return [(event.event, event.player) for event in Run.open(path).league.events() if event.round >= 0]


@pytest.mark.parametrize(
    ("words", "happened"),
    [
        (  # one place is left, and no player is reset without its snapshot
            ("league.action=snapshot", "league.max_players=4"),
            [("snapshot", "player_0@0"), ("reset", "player_0")],
        ),
        (
            ("league.action=retire",),
            [("frozen", "player_2"), ("retired", "player_2"), ("reset", "player_0")],
        ),
        (  # all wish the same state, so only the reset of player_2 itself is dropped
            ("league.action=freeze",),
            [("frozen", "player_2"), ("reset", "player_0"), ("reset", "player_1")],
        ),
    ],
)
def test_a_decision_that_became_impossible_in_its_round_is_dropped_with_those_after_it(
    tmp_path: Path, words: tuple[str, ...], happened: list[tuple[str, str]]
) -> None:
    assert _unanimous(tmp_path / "run", *words) == happened


def test_a_player_is_added_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="adds the player 'fresh', which exists already"):
        _unanimous(tmp_path / "run", "league.action=add")

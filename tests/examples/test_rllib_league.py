"""The worked example of a league: its shares and thresholds, and a short training run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import chisquare

import marlnb as mnb
from marlnb.errors import ConfigError
from marlnb.league_config import LEAGUES
from marlnb.populations.league.draws import Pairing, draw_match, review
from marlnb.populations.league.matches import Match
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.players import Player, Side
from marlnb.populations.league.roster import first_players, first_state
from marlnb.populations.league.state import LeagueState
from tests.examples.rllib_league import RLlibLeague

NAME = "tests.examples.rllib_league:RLlibLeague"
GAME = "env=tests.populations.training.games:RockPaperScissors"
SEATS = (Side("a", ("a",)), Side("b", ("b",)))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """The example has a name; forgotten afterwards, so that other tests do not see it."""
    LEAGUES.get(NAME)
    yield
    LEAGUES._members.pop(NAME)


def league_with(config: RLlibLeague, *wins: tuple[str, str, int]) -> LeagueState:
    """After 20 games of each pair; its first player won so many."""
    matches = [
        Match(k, a, "", {"a": a, "b": b}, (0, 0), (float(k < n), float(k >= n)), 1)
        for a, b, n in wins
        for k in range(20)
    ]
    first = first_state(config, SEATS, first_players(config, SEATS, symmetric=True))
    second = Player("main_0@1", "main", learning=False, parent="main_0")
    return replace(
        first, players={**first.players, second.id: second}, payoff=PayoffTable.from_matches(matches, decay=1)
    )


def test_shares_of_matches() -> None:
    config = RLlibLeague(main_exploiter_match=0.2, league_exploiter_match=0.3, learning_main=0.25)
    league = league_with(config, ("main_0@1", "league_exploiter_0", 20), ("main_0@0", "league_exploiter_0", 0))

    def draws(player: str) -> list[Pairing]:
        return [draw_match(config, league, player, k, seed=0) for k in range(2000)]

    kinds = Counter(draw.kind for draw in draws("main_0"))
    assert (
        chisquare([kinds[k] for k in ("main_exploiter", "league_exploiter", "self_play")], [400, 600, 1000])[1] > 1e-3
    )
    mains = Counter("main_0" in draw.players.values() for draw in draws("main_exploiter_0"))
    assert chisquare([mains[True], mains[False]], [500, 1500])[1] > 1e-3
    # Softmax of the snapshots' own win rates, 1 and 0: e / (1 + e) = 0.731
    best = Counter("main_0@1" in draw.players.values() for draw in draws("league_exploiter_0"))
    assert chisquare([best[True], best[False]], [2000 * 0.7311, 2000 * 0.2689])[1] > 1e-3


@pytest.mark.parametrize(("wins", "decided"), [(17, []), (18, ["snapshot"])])
def test_a_snapshot_above_the_threshold(wins: int, decided: list[str]) -> None:
    config = RLlibLeague(thresholds={"league_exploiter_0": 0.95})
    league = league_with(config, ("main_0", "main_exploiter_0", wins), ("league_exploiter_0", "main_0@0", 19))
    assert [decision.action for decision in review(config, league, "main_0", seed=0)] == decided
    assert review(config, league, "league_exploiter_0", seed=0) == ()  # 19 of 20 are not more than 95%


def test_a_copy_that_learns() -> None:
    config = RLlibLeague(keep_training=1)
    league = league_with(config, ("main_exploiter_0", "main_0", 20))
    (decision,) = review(config, league, "main_exploiter_0", seed=0)
    assert decision.new is not None and decision.new.parent == "main_exploiter_0"


def test_it_trains_with_options_of_one_player(tmp_path: Path) -> None:
    words = [GAME, f"league={NAME}", "league.thresholds={main_0:0.1,main_exploiter_0:0.99,league_exploiter_0:0.99}"]
    small = ["algorithm=ippo", "n_envs=4", "rollout_steps=16", "frames=384"]
    run = mnb.train(mnb.Experiment.compose(*words, *small), tmp_path / "run", progress=False)
    assert list(run.league.players) == ["main_0", "main_exploiter_0", "league_exploiter_0"]
    assert len(run.league["main_0"].snapshots) == 3  # one at the beginning, one after each of the two rounds
    assert run.league["league_exploiter_0"].snapshots == []
    with pytest.raises(ConfigError, match="threshold must be less than 1"):
        mnb.Experiment.compose(GAME, f"league={NAME}", "league.threshold=1")

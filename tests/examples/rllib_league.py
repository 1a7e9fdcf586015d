"""A league of one's own: that of RLlib, which it had until 2024. One threshold of the win rate for each agent.

Source: ray-project/ray, rllib/algorithms/alpha_star/league_builder.py; the threshold
is that of the example that followed it, self_play_league_based_with_open_spiel.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from marlnb import LeagueConfig, option
from marlnb.populations.builders.history import MAIN, new_players
from marlnb.populations.league.draws import choose
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Decision, Draw, LeagueState

MAIN_EXPLOITER, LEAGUE_EXPLOITER = "main_exploiter", "league_exploiter"


@dataclass(frozen=True)
class RLlibLeague(LeagueConfig):
    """Snapshots of players that win more often than a threshold; the better a snapshot, the more it plays."""

    threshold: float = option(0.85, help="a player that wins a larger share of its games gets a snapshot", ge=0, lt=1)
    thresholds: Mapping[str, float] = option({}, help="the same for single players, as league.thresholds.main_0=0.7")
    main_exploiter_match: float = option(0.33, help="share of a main's matches against main exploiters", ge=0, le=1)
    league_exploiter_match: float = option(0.33, help="the same against league exploiters; the rest: mains", ge=0, le=1)
    learning_main: float = option(0.5, help="share of a main exploiter's matches against learning mains", ge=0, le=1)
    keep_training: float = option(0.0, help="probability that an exploiter's copy learns instead", ge=0, le=1)

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        exploiters = new_players(MAIN_EXPLOITER, 1, sides) + new_players(LEAGUE_EXPLOITER, 1, sides)
        return new_players(MAIN, 1, sides, with_snapshot=True) + exploiters

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        kind, learning = LEAGUE_EXPLOITER, False
        roles: tuple[str, ...] = ()  # a league exploiter meets all snapshots
        if player.role == MAIN_EXPLOITER:
            kind, roles, learning = MAIN_EXPLOITER, (MAIN,), rng.random() < self.learning_main
        elif player.role == MAIN:
            exploiters = (self.main_exploiter_match, self.league_exploiter_match)
            of_kind = int(np.searchsorted(np.cumsum(exploiters), rng.random(), side="right"))
            kind, learning = (MAIN_EXPLOITER, LEAGUE_EXPLOITER, "self_play")[of_kind], True
            roles = ((MAIN_EXPLOITER,), (LEAGUE_EXPLOITER,), (MAIN,))[of_kind]
        pool_of = league.learning_of if learning else league.past_of
        pools = [pool_of(side, *roles) for side in league.other_sides(player)]
        return Draw(kind, tuple(choose(rng, pool, [np.exp(win_rate(p, league)) for p in pool]) for pool in pools))

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        rate = win_rate(player, league)
        if rate <= self.thresholds.get(player.id, self.threshold):
            return ()
        if player.role == MAIN or rng.random() >= self.keep_training:
            return (Decision("snapshot", reason=f"won {rate:.0%}"),)
        copy = NewPlayer(f"{player.id}_{league.round}", player.role, player.side, parent=player.id)
        return (Decision("add", reason=f"won {rate:.0%}", new=copy),)


def win_rate(player: Player, league: LeagueState) -> float:
    """The share of its newest games that a player won, against all opponents together; 0.5 before the first."""
    row = league.payoff.players.index(player.id)
    games = league.payoff.games[row].sum()
    return float(league.payoff.wins[row].sum() / games) if games else 0.5

"""A league whose players join, freeze and retire at given rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb import LeagueConfig, option
from marlnb.populations.builders.history import new_players
from marlnb.populations.league.draws import choose
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Decision, Draw, LeagueState


@dataclass(frozen=True)
class Growing(LeagueConfig):
    """Everybody meets everybody. player_0 adds a player after each round, from `fresh_from` on with fresh weights."""

    fresh_from: int = option(2, help="round from which new players start with fresh weights", ge=0)
    freeze_at: int = option(1, help="round after which player_1 is frozen", ge=0)
    retire_at: int = option(2, help="round after which player_1 retires", ge=0)

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        return new_players("player", 2, sides)

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        others = [other for other in league.players.values() if other != player]
        return Draw("any", (choose(rng, others),))

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        if player.id != "player_0":
            return ()
        parent = "" if league.round >= self.fresh_from else player.id
        new = NewPlayer(f"added_{league.round}", "added", parent=parent, with_snapshot=True)
        decisions = [Decision("snapshot", reason="before a copy"), Decision("add", reason="a round ended", new=new)]
        other = Decision("freeze" if league.round == self.freeze_at else "retire", player="player_1", reason="its time")
        return (other, *decisions) if league.round in (self.freeze_at, self.retire_at) else tuple(decisions)

"""A league in which every player's review makes the same decisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb import option
from marlnb.populations.builders.history import new_players
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Decision, LeagueState
from tests.populations.training.league.growing_league import Growing


@dataclass(frozen=True)
class Unanimous(Growing):
    """After the first round each of three players decides about player_2, or adds a player, and resets itself."""

    action: str = option("retire", help="what all decide first")

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        return new_players("player", 3, sides)

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        if league.round:
            return ()
        if self.action == "add":
            return (Decision("add", new=NewPlayer("fresh", "player", player.side)),)
        whom = "" if self.action == "snapshot" else "player_2"
        return Decision(self.action, player=whom), Decision("reset")  # type: ignore[arg-type]

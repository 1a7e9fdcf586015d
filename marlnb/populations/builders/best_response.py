"""An approximate best response: one player learns against a fixed player of another run alone.

What it wins after a stated number of steps is at least what the fixed player can lose. `marlnb.best_response` trains
one with the fixed player's networks, and measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.config import option
from marlnb.errors import ConfigError, unknown
from marlnb.league_config import LEAGUES, LeagueConfig
from marlnb.populations.builders.history import new_players
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Draw, LeagueState

RESPONSE, FIXED = "response", "fixed"


@LEAGUES.register("best_response")
@dataclass(frozen=True)
class BestResponseConfig(LeagueConfig):
    """A new player for each other side learns against one fixed player of another run."""

    run: str = option(".", help="folder of the run whose player is fixed; it is read when the training begins")
    player: str = option("", help="the player or snapshot of that run's league; none: the policies of the run itself")
    side: str = option(
        "",
        help="the fixed player's side, where sides have players of their own; none: the last side of the environment",
    )

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        side = self.side or sides[-1]
        if side not in sides:
            raise ConfigError(unknown("side in league.side", side, sides), at="league.side")
        others = tuple(other for other in sides if other != side) or sides
        fixed = NewPlayer(FIXED, FIXED, side, run=self.run, run_player=self.player)
        return (*new_players(RESPONSE, 1, others), fixed)

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        fixed = league.players[FIXED]
        responses = {other.side: other.id for other in league.learning}
        others = league.other_sides(player)
        return Draw(RESPONSE, tuple(FIXED if fixed.takes(side) else responses[side] for side in others))

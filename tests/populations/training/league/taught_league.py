"""A league in which pupils learn against teachers that another run trained, who come first in the roster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb import LeagueConfig, option
from marlnb.populations.builders.history import new_players
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Draw, LeagueState


@dataclass(frozen=True)
class Taught(LeagueConfig):
    """One teacher for each side, and one pupil for each side but `only_taught`."""

    run: str = option("", help="folder of the teachers' run")
    only_taught: str = option("", help="the side of which nothing learns")

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        teachers = [NewPlayer(f"{side}_teacher", "teacher", side, run=self.run) for side in sides]
        return (*teachers, *new_players("pupil", 1, [side for side in sides if side != self.only_taught]))

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        teachers = (next(each.id for each in league.past if each.takes(side)) for side in league.other_sides(player))
        return Draw("lesson", tuple(teachers))

"""Self-play: the current players meet each other alone. The control for every other kind of league."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.league_config import LEAGUES
from marlnb.populations.builders.history import HistoryLeague, current_opponents
from marlnb.populations.league.players import Player
from marlnb.populations.league.state import Draw, LeagueState


@LEAGUES.register("self_play")
@dataclass(frozen=True)
class SelfPlayConfig(HistoryLeague):
    """The current player against itself, or the current players of the sides; snapshots do not play."""

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        return current_opponents(rng, player, league)

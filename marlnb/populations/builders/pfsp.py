"""Prioritised fictitious self-play alone: one role, whose opponents are drawn by the win rate against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from marlnb.config import option
from marlnb.league_config import LEAGUES
from marlnb.populations.builders.history import PastLeague
from marlnb.populations.league.pfsp import Weighting, pfsp_weights
from marlnb.populations.league.players import Player
from marlnb.populations.league.state import LeagueState


@LEAGUES.register("pfsp")
@dataclass(frozen=True)
class PFSPConfig(PastLeague):
    """Past players that are harder to beat are met more often. `marlnb.populations.league.pfsp` defines f."""

    past_kind: ClassVar[str] = "pfsp"

    weighting: Weighting = option(
        "hard",
        help="hard: (1-x)^p of the win rate x; var: x(1-x); capped: min(1/2, 1-x)",
        choices=("hard", "var", "capped"),
    )
    p: float = option(2.0, help="exponent of the weighting hard", gt=0, le=100)

    def weights(self, player: Player, past: tuple[Player, ...], league: LeagueState) -> np.ndarray:
        rates = league.payoff.rates(player.id, [other.id for other in past], self.min_games)
        return pfsp_weights(rates, self.weighting, self.p)

"""Fictitious self-play: all past players are equally likely opponents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marlnb.config import option
from marlnb.league_config import LEAGUES
from marlnb.populations.builders.history import PastLeague
from marlnb.populations.league.players import Player
from marlnb.populations.league.state import LeagueState


@LEAGUES.register("fictitious")
@dataclass(frozen=True)
class FictitiousConfig(PastLeague):
    """Fictitious self-play: opponents are drawn uniformly from all past players.

    Source: Heinrich et al. 2015. The players learn by reinforcement what best responds to the average of the past.
    """

    def weights(self, player: Player, past: tuple[Player, ...], league: LeagueState) -> np.ndarray:
        return np.ones(len(past))


@LEAGUES.register("delta_uniform")
@dataclass(frozen=True)
class DeltaUniformConfig(PastLeague):
    """Opponents are drawn uniformly from the newest past players: of each player's n snapshots, those from delta n on.

    Source: Bansal et al. 2018, "Emergent complexity via multi-agent competition", section 5.2 (arXiv:1710.03748).
    """

    delta: float = option(
        0.5, help="share of the oldest snapshots that are left out; 1: all but the newest", ge=0, le=1
    )

    def weights(self, player: Player, past: tuple[Player, ...], league: LeagueState) -> np.ndarray:
        parents = [snapshot.parent for snapshot in past]
        weights = np.zeros(len(past))
        for parent in dict.fromkeys(parents):
            own = [k for k, other in enumerate(parents) if other == parent]
            weights[own[min(int(self.delta * len(own)), len(own) - 1) :]] = 1
        return weights

"""Policy-space response oracles: each player learns to beat a mixture of the snapshots so far, and joins them.

A snapshot's probability in the mixture is that of a solution of the meta-game, whose payoffs are the win rates between
the snapshots of the two sides:

    A[i, j] = 2 P[snapshot i of one side beats snapshot j of the other] - 1

Snapshots do not learn, so they meet each other in matches of the kind "evaluation" (`evaluation_share`).

Source: Lanctot et al. 2017 (arXiv:1711.00832); alpha-rank as the solver: Muller et al. 2020 (arXiv:1909.12823).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.league_config import LEAGUES, LeagueConfig
from marlnb.populations.builders.history import frames_between, new_players
from marlnb.populations.league.draws import choose
from marlnb.populations.league.players import NewPlayer, Player
from marlnb.populations.league.state import Decision, Draw, LeagueState
from marlnb.populations.ratings.alpha_rank import alpha_rank, alpha_rank_of_two
from marlnb.populations.ratings.matrix_games import projected_replicator_dynamics, zero_sum_nash

ORACLE = "oracle"
ORACLE_SHARE = 0.1
"""Of a training run, for one oracle, where no number of frames is given."""

MetaSolver = Literal["uniform", "nash", "alpha_rank", "prd"]


@LEAGUES.register("psro")
@dataclass(frozen=True)
class PSROConfig(LeagueConfig):
    """Policy-space response oracles: learn to beat a mixture of the past, chosen by a solver of the meta-game."""

    solver: MetaSolver = option(
        "nash",
        help="the mixture of snapshots: uniform, an equilibrium by linear programming, alpha-rank, or projected "
        "replicator dynamics",
        choices=("uniform", "nash", "alpha_rank", "prd"),
    )
    oracle_frames: int | None = option(
        None,
        help="frames that an oracle learns from before it joins the snapshots; none: a tenth of the training",
        unit="frames",
        ge=1,
    )
    reset: float = option(0.0, help="probability that the next oracle starts with fresh weights", ge=0, le=1)
    alpha: float = option(10.0, help="alpha-rank's intensity of selection", gt=0, le=1000)
    population: int = option(50, help="alpha-rank's size of a population", ge=2, le=10_000)
    gamma: float = option(1e-6, help="smallest probability in projected replicator dynamics", ge=0, lt=1)
    evaluation_share: float = option(
        0.2,
        help="share of matches from which no player learns, each between the two players or snapshots that met "
        "least often. 0: win rates come from training matches alone",
        ge=0,
        lt=1,
    )

    def roster(self, sides: tuple[str, ...]) -> tuple[NewPlayer, ...]:
        return new_players(ORACLE, 1, sides, with_snapshot=True)

    def draw(self, rng: np.random.Generator, player: Player, league: LeagueState) -> Draw:
        if len(league.sides) != 2:
            raise ConfigError(f"psro solves games of two sides; this one has {len(league.sides)}")
        (side,) = league.other_sides(player)
        snapshots = league.past_of(side)
        weights = league.cached(("meta_strategy", side), lambda: self.meta_strategy(league, side))
        return Draw("meta_strategy", (choose(rng, snapshots, weights),))

    def review(self, rng: np.random.Generator, player: Player, league: LeagueState) -> tuple[Decision, ...]:
        if league.frames_since_snapshot(player) < frames_between(self.oracle_frames, league, ORACLE_SHARE):
            return ()
        snapshot = Decision("snapshot", reason="oracle complete")
        return (snapshot, Decision("reset")) if rng.random() < self.reset else (snapshot,)

    def meta_strategy(self, league: LeagueState, side: str) -> np.ndarray:
        """The probability of each snapshot of a side `[snapshot]`, the oldest first, in the meta-game's solution."""
        names = [player.id for player in league.past_of(side)]
        if self.solver == "uniform":
            return np.full(len(names), 1 / len(names))
        opponents = names
        if not league.is_symmetric:
            opponents = [player.id for player in league.past if player.side != side]
        win_rates = league.payoff.block(names, opponents)
        payoffs = 2 * win_rates - 1
        if self.solver == "nash":
            return zero_sum_nash(payoffs)[0].x
        if self.solver == "prd":
            return projected_replicator_dynamics(payoffs, gamma=min(self.gamma, 1 / max(payoffs.shape))).x
        if league.is_symmetric:
            return alpha_rank(win_rates, m=self.population, alpha=self.alpha)
        return alpha_rank_of_two(win_rates, 1 - win_rates, m=self.population, alpha=self.alpha)[0]

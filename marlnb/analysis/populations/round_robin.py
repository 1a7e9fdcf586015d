"""round_robin: every pair of players plays a match, so that all results count equally."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from marlnb.analysis.populations.match import match
from marlnb.analysis.populations.match_result import MatchResult
from marlnb.populations.league.players import ANY_SIDE
from marlnb.populations.matches.seating import label_of, player_side
from marlnb.specs import derive_seed
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.policies.policy_source import PolicySource


class Results(NamedTuple):
    """Results of players against each other.

    Attributes:
        wins: wins and half of the draws `[player, opponent]`.
        games: their number `[player, opponent]`; 0 where two players cannot meet, and on the diagonal.
    """

    wins: np.ndarray
    games: np.ndarray

    @property
    def win_rates(self) -> np.ndarray:
        """`[player, opponent]`, 1/2 where they have not met."""
        return np.divide(self.wins, self.games, out=np.full(self.games.shape, 0.5), where=self.games > 0)


def round_robin(players: Sequence[PolicySource], *, episodes: int, progress: bool = False) -> Results:
    """Plays a match of `episodes` games between each two players that can meet.

    Raises:
        ConfigError: two players have other groups, observations or actions.
    """
    wins, games = (np.zeros((len(players), len(players))) for _ in range(2))
    for i, j in combinations(range(len(players)), 2):
        if not can_meet(players[i], players[j]):
            continue
        rate = pair_match(players[i], players[j], episodes=episodes, progress=progress).win_rate.value
        wins[i, j], wins[j, i] = rate * episodes, (1 - rate) * episodes
        games[i, j] = games[j, i] = episodes
    return Results(wins, games)


def pair_match(
    first: PolicySource,
    second: PolicySource,
    *,
    episodes: int,
    sides: Sequence[str] | None = None,
    progress: bool = False,
) -> MatchResult:
    """A match whose seed depends on both players' weights, and its folder on their checkpoints.

    With one seed for all pairs, the same luck would count in each of them, and an interval over them would be too
    narrow. In the other order the two play the same games, and so do players that were trained again in the same way.
    """
    checkpoints = [source.origin().sha256[:8] for source in (first, second)]
    name = "-".join([label_of(first), label_of(second), *checkpoints, str(episodes)])
    seed = derive_seed(0, "match", *sorted(weights_sha256(source.policies()) for source in (first, second)))
    return match(first, second, episodes=episodes, sides=sides, name=name, seed=seed, sites=(), progress=progress)


def can_meet(first: PolicySource, second: PolicySource) -> bool:
    """Whether two players take different sides, or any."""
    sides = player_side(first), player_side(second)
    return ANY_SIDE in sides or sides[0] != sides[1]

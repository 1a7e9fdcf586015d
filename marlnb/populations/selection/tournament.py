"""Tournament selection with elitism.

Each place is won by the fittest of `size` members, drawn with replacement from the N that did not diverge. The one with
rank i (1 is the fittest) wins a tournament of k with probability

    P[rank i wins] = ((N - i + 1)^k - (N - i)^k) / N^k

The `elites` fittest members keep their places and are never mutated, so the best of noiseless fitness never falls.
Source: AgileRL 2.58.0, `TournamentSelection`, which mutates elites by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.evolution_config import EVOLUTIONS, EvolutionConfig
from marlnb.populations.evolution.members import Scored, Successor, ranked


@EVOLUTIONS.register("tournament")
@dataclass(frozen=True)
class TournamentConfig(EvolutionConfig):
    """The fittest members keep their places; the others are replaced by mutated winners of tournaments."""

    size: int = option(2, help="members that meet in one tournament", unit="members", ge=1, le=1000)
    elites: int = option(1, help="fittest members that continue as they are", unit="members", ge=0, le=1000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites >= self.population:
            raise ConfigError(
                f"elites={self.elites} of population={self.population} leaves no member to select; at most "
                f"elites={self.population - 1}"
            )

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        order = ranked(rng, members)
        fit = [member for member in order if member.fitness > -math.inf] or order  # the others diverged
        elites = {member.place for member in fit[: self.elites]}
        winners = rng.integers(len(fit), size=(len(members), self.size)).min(axis=1)  # the smallest rank wins
        return tuple(
            Successor(member.place) if member.place in elites else Successor(fit[winner].place, mutate=True)
            for member, winner in zip(members, winners)
        )

"""Multi-frequency population-based training: sub-populations that evolve at different periods, with migrants between.

Members are divided into sub-populations of equal size; number i evolves after every `periods[i]` generations. Its
members are ranked, and fall into brackets:

    winners     continue
    survivors   continue; as many as are left
    open        replaced by the best members of the other sub-populations, if those are fitter
    losers      replaced by copies of winners, which are mutated

A migrant from a faster sub-population brings its weights only and takes the options of the best member here. One from
a slower sub-population keeps its options. Only the copies that replace losers are mutated.
Source: Doulazmi et al. 2025, section 4 (arXiv:2506.03225), with 2, 0, 2 and 4 of 8 members and periods of 1 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.evolution_config import (
    CHANGE,
    EVOLUTIONS,
    FOUNDERS,
    POPULATION,
    Change,
    EvolutionConfig,
    Founders,
    Probabilities,
)
from marlnb.populations.evolution.members import Scored, Successor, ranked


@EVOLUTIONS.register("mf_pbt")
@dataclass(frozen=True)
class MFPBTConfig(EvolutionConfig):
    """Multi-frequency PBT: sub-populations that evolve at different periods, and exchange their best members."""

    population: int = option(16, **POPULATION)
    founders: Founders = option("drawn", **FOUNDERS)
    change: Change = option("all", **CHANGE)
    probability: Probabilities = option(
        Probabilities(none=0.0, hyperparameters=1.0), help="of each kind of mutation of a copy"
    )
    periods: tuple[int, ...] = option(
        (1, 5), help="generations between two selections of each sub-population", unit="generations", ge=1, le=1000
    )
    winners: float = option(0.25, help="share of a sub-population that is copied", gt=0, le=0.5)
    open: float = option(0.25, help="share of a sub-population whose places migrants may take", ge=0, le=0.5)
    losers: float = option(0.5, help="share of a sub-population that is replaced by copies of winners", gt=0, le=0.75)

    def __post_init__(self) -> None:
        super().__post_init__()
        n = len(self.periods)
        if not n or self.population % n or self.population // n < 2:
            raise ConfigError(
                f"population={self.population} must be divided equally between {n} sub-populations "
                f"(periods={list(self.periods)}) of at least 2 members"
            )
        if self.winners + self.open + self.losers > 1:
            raise ConfigError(
                f"winners={self.winners:g}, open={self.open:g} and losers={self.losers:g} are shares of a "
                "sub-population, at most 1 together"
            )

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        size = len(members) // len(self.periods)
        groups = [ranked(rng, members[k * size : (k + 1) * size]) for k in range(len(self.periods))]
        successors = [Successor(member.place) for member in members]
        for number in range(len(groups)):
            if (members[0].generation + 1) % self.periods[number] == 0:
                for successor, member in self._brackets(rng, number, groups):
                    successors[member.place] = successor
        return tuple(successors)

    def _brackets(
        self, rng: np.random.Generator, number: int, groups: Sequence[Sequence[Scored]]
    ) -> list[tuple[Successor, Scored]]:
        """What becomes of the open places and the losers of one sub-population."""
        group = groups[number]
        n_winners = max(1, round(self.winners * len(group)))
        n_losers = min(len(group) - n_winners, round(self.losers * len(group)))
        n_open = min(len(group) - n_winners - n_losers, round(self.open * len(group)))
        first_loser = len(group) - n_losers
        decided = [
            (Successor(group[int(rng.integers(n_winners))].place, mutate=True), loser) for loser in group[first_loser:]
        ]
        others = [(member, k) for k, other in enumerate(groups) if k != number for member in other]
        migrants = sorted(others, key=lambda pair: pair[0].fitness, reverse=True)
        for member, (migrant, origin) in zip(group[first_loser - n_open : first_loser], migrants):
            if migrant.fitness > member.fitness:
                is_faster = self.periods[origin] < self.periods[number]
                decided.append((Successor(migrant.place, options_of=group[0].place if is_faster else None), member))
        return decided

"""Controls: what a claim about evolution must be compared with, at equal frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from marlnb.config import option
from marlnb.evolution_config import EVOLUTIONS, FOUNDERS, EvolutionConfig, Founders
from marlnb.populations.evolution.members import Scored, Successor
from marlnb.populations.selection.tournament import TournamentConfig


@EVOLUTIONS.register("random_search")
@dataclass(frozen=True)
class RandomSearchConfig(EvolutionConfig):
    """Random search: options are drawn once, and every member keeps its own. Member 0 has the experiment's."""

    founders: Founders = option("drawn", **FOUNDERS)

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        return tuple(Successor(member.place) for member in members)


@EVOLUTIONS.register("select_only")
@dataclass(frozen=True)
class SelectOnlyConfig(TournamentConfig):
    """Tournaments without mutation: what selection alone gains from the variance between seeds."""

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        return tuple(replace(successor, mutate=False) for successor in super().select(rng, members))


@EVOLUTIONS.register("mutate_only")
@dataclass(frozen=True)
class MutateOnlyConfig(EvolutionConfig):
    """Mutation without selection: every member continues itself, mutated. Member 0 keeps the experiment's options."""

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        return tuple(Successor(member.place, mutate=member.place > 0) for member in members)

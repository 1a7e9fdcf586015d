"""Population-based training: truncation selection with a minimum gap.

    of N members, each of the worst n = max(1, round(share N)) continues from one of the best n, drawn with equal
    probability, if  fitness[best] - fitness[worst] > gap;  its options are then all changed, or drawn again

With `weights_only` a member keeps its own options, so that copying costs no diversity.
Source: Jaderberg et al. 2017, section 4.1 (arXiv:1711.09846); the gap: Sample Factory 2.1.1; resampling: Ray Tune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marlnb.config import option
from marlnb.evolution_config import (
    CHANGE,
    EVOLUTIONS,
    FOUNDERS,
    RESAMPLE,
    Change,
    EvolutionConfig,
    Founders,
    Probabilities,
)
from marlnb.populations.evolution.members import Scored, Successor, ranked


@EVOLUTIONS.register("pbt")
@dataclass(frozen=True)
class PBTConfig(EvolutionConfig):
    """Population-based training: the worst members continue as changed copies of the best."""

    founders: Founders = option("drawn", **FOUNDERS)
    change: Change = option("all", **CHANGE)
    resample: float = option(0.25, **RESAMPLE)
    probability: Probabilities = option(
        Probabilities(none=0.0, hyperparameters=1.0), help="of each kind of mutation of a copy"
    )
    share: float = option(0.2, help="share of the members that are replaced, and of those copied", gt=0, le=0.5)
    gap: float = option(0.0, help="a member is replaced if its parent's fitness is larger by more", unit="reward", ge=0)
    weights_only: bool = option(False, help="a replaced member keeps its own options, which are then changed")

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        order = ranked(rng, members)
        n = max(1, round(self.share * len(order)))
        successors = [Successor(member.place) for member in members]
        for worst in order[-n:]:
            best = order[int(rng.integers(n))]
            if best.fitness > worst.fitness and best.fitness - worst.fitness > self.gap:
                options_of = worst.place if self.weights_only else None
                successors[worst.place] = Successor(best.place, mutate=True, options_of=options_of)
        return tuple(successors)

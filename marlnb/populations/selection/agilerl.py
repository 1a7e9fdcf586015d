"""The settings of AgileRL's multi-agent tutorial (MATD3 on speaker_listener), as far as they have a counterpart.

    tournament of 2 with elitism, population 4, last evaluation only
    no mutation 0.2, architecture 0.2 (a layer in 0.2 of them, else units), parameters 0.2, activation 0, option 0.2
    lr_actor, lr_critic: 1e-4 to 1e-2, times 1.2 or 0.8;  batch_size: 8 to 512, times 1.2 or 0.8
    learn_step: 20 to 200 steps between two gradient steps, times 1.5 or 0.75

`updates` after a rollout stands for the learn_step, times 1 / 0.75 or 1 / 1.5. Two differences: elites are never
mutated, and the optimizer's moments survive.
Source: AgileRL 2.58.0, tutorials/pettingzoo and `RLParameter`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from marlnb.config import AlgorithmConfig, SearchRange, option
from marlnb.evolution_config import EVOLUTIONS, POPULATION, WINDOW, Probabilities
from marlnb.populations.selection.tournament import TournamentConfig

BOUNDS = {"lr": (1e-4, 1e-2), "lr_critic": (1e-4, 1e-2), "batch_size": (8.0, 512.0)}
FACTORS = {"updates": (1 / 0.75, 1 / 1.5)}
MUTABLE = (*BOUNDS, *FACTORS)


@EVOLUTIONS.register("agilerl")
@dataclass(frozen=True)
class AgileRLConfig(TournamentConfig):
    """The settings of AgileRL's multi-agent tutorial: tournaments of 2, and mutations of options and networks."""

    population: int = option(4, **POPULATION)
    fitness_window: int = option(1, **WINDOW)
    probability: Probabilities = option(
        Probabilities(none=0.2, hyperparameters=0.2, width=0.16, depth=0.04, parameters=0.2),
        help="of each kind of mutation",
    )

    def mutable_of(self, algorithm: AlgorithmConfig) -> tuple[str, ...]:
        names = tuple(name for name in MUTABLE if name in {item.name for item in fields(algorithm)})
        return self.mutable or names

    def bounds_of(self, name: str, declared: SearchRange) -> tuple[float, float]:
        own = BOUNDS.get(name, (declared.min, declared.max))
        return self.ranges.get(name, own)

    def factors_of(self, name: str) -> tuple[float, float]:
        return self.factors.get(name, FACTORS.get(name, (self.grow, self.shrink)))

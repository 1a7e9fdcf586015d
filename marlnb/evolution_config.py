"""EvolutionConfig: the options of a population, and the decision in which kinds of evolution differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.registry import Registry
from marlnb.trust import loaded
from marlnb.unloaded import Unloaded
from marlnb.values import validate

if TYPE_CHECKING:
    import numpy as np

    from marlnb.populations.evolution.members import Scored, Successor

EVOLUTIONS: Registry[type[EvolutionConfig]] = Registry("evolution", "marlnb.populations")

evolution = EVOLUTIONS.register


@dataclass(frozen=True)
class Probabilities:
    """How often a member that may mutate gets each kind of mutation; they are relative to their sum."""

    none: float = option(0.2, help="no mutation", ge=0)
    hyperparameters: float = option(0.8, help="options of its algorithms, as the learning rate", ge=0)

    def __post_init__(self) -> None:
        validate(self)
        if not any(getattr(self, item.name) for item in fields(self)):
            raise ConfigError("the probabilities of all kinds of mutation are 0; give none=1 to mutate nothing")


@dataclass(frozen=True)
class EvolutionConfig(ABC):
    """The options of one kind of evolution; registered under its name, as `tournament`.

    Members of a population train one after the other, are evaluated on the same episodes, and `select` says from which
    member each place of the next generation continues. It is a pure function: it reads nothing but its arguments, and
    takes random numbers from `rng` alone.
    """

    registry: ClassVar[Registry[type[EvolutionConfig]]] = EVOLUTIONS
    unloaded: ClassVar[type[UnloadedEvolution]]
    name: ClassVar[str]

    population: int = option(8, help="members that train at the same time", unit="members", ge=2, le=1000)
    generation_frames: int = option(
        0,
        help="frames of each member between two selections, in whole iterations; 0: a twentieth of its share",
        unit="frames",
        ge=0,
        le=10**12,
    )
    fitness_window: int = option(
        3, help="a member's fitness is the mean of so many of its last evaluations, its ancestors' included", ge=1
    )
    founders: Literal["equal", "drawn"] = option(
        "equal",
        help="options of the first members; equal: the experiment's; drawn: from the ranges, except for member 0",
        choices=("equal", "drawn"),
    )
    mutable: tuple[str, ...] = option(
        (), help="options of algorithms that mutate, as [lr,clip]; none: those that each algorithm names itself"
    )
    ranges: Mapping[str, tuple[float, float]] = option(
        {}, help="by option, minimum and maximum that replace its own, as ranges.lr=[1e-4,1e-3]"
    )
    change: Literal["one", "all"] = option(
        "one", help="how many of the mutable options one mutation changes", choices=("one", "all")
    )
    grow: float = option(1.2, help="factor of a change upward, on the option's scale", gt=1, le=1000)
    shrink: float = option(0.8, help="factor of a change downward", gt=0, lt=1)
    resample: float = option(
        0.0, help="probability that an option is drawn anew from its range instead of changed", ge=0, le=1
    )
    probability: Probabilities = option(Probabilities(), help="of each kind of mutation")

    def __post_init__(self) -> None:
        validate(self)

    @abstractmethod
    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        """From which member each place of the next generation continues, in the order of the places.

        Args:
            rng: of this generation alone.
            members: of the generation that was evaluated, by place.
        """


@dataclass(frozen=True, kw_only=True, repr=False)
class UnloadedEvolution(Unloaded, EvolutionConfig):  # type: ignore[misc]  # `name` is of the instance here
    """An evolution whose code has not been imported."""

    def __post_init__(self) -> None:
        for item in fields(EvolutionConfig):
            if item.name in self.options:
                object.__setattr__(self, item.name, self.options[item.name])

    def select(self, rng: np.random.Generator, members: Sequence[Scored]) -> tuple[Successor, ...]:
        """Raises TrustError: the user does not trust the code."""
        return loaded(cast(EvolutionConfig, self), "evolution").select(rng, members)


EvolutionConfig.unloaded = UnloadedEvolution

"""EvolutionConfig: the options of a population, and the decision in which kinds of evolution differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from marlnb.config import option
from marlnb.errors import ConfigError
from marlnb.plugins.registry import Registry
from marlnb.plugins.unloaded import Unloaded
from marlnb.trust import loaded
from marlnb.values import validate

if TYPE_CHECKING:
    import numpy as np

    from marlnb.config import AlgorithmConfig, SearchRange
    from marlnb.populations.evolution.members import Scored, Successor

Founders = Literal["equal", "drawn"]
Change = Literal["one", "all"]

EVOLUTIONS: Registry[type[EvolutionConfig]] = Registry("evolution", "marlnb.populations")

evolution = EVOLUTIONS.register

FOUNDERS: dict[str, Any] = {
    "help": "options of the first members; equal: the experiment's; drawn: from the ranges, except for member 0",
    "choices": ("equal", "drawn"),
}
CHANGE: dict[str, Any] = {"help": "how many of the mutable options one mutation changes", "choices": ("one", "all")}
GROW: dict[str, Any] = {"help": "factor of a change upward, on the option's scale", "gt": 1, "le": 1000}
SHRINK: dict[str, Any] = {"help": "factor of a change downward", "gt": 0, "lt": 1}
RESAMPLE: dict[str, Any] = {
    "help": "probability that an option is drawn again from its range instead of changed",
    "ge": 0,
    "le": 1,
}
POPULATION: dict[str, Any] = {"help": "members that train at the same time", "unit": "members", "ge": 2, "le": 1000}
WINDOW: dict[str, Any] = {
    "help": "a member's fitness is the mean of this many of its last evaluations, including its ancestors'",
    "ge": 1,
    "le": 1000,
}
"""What the options say whose defaults differ between kinds of evolution."""
RANDOM = "random"  # among `references`, next to folders of runs


@dataclass(frozen=True)
class Probabilities:
    """How often a member that may mutate gets each kind of mutation; they are relative to their sum."""

    none: float = option(0.2, help="no mutation", ge=0)
    hyperparameters: float = option(0.8, help="options of its algorithms, such as the learning rate", ge=0)
    width: float = option(0.0, help="more units in a hidden layer; what the network computes stays the same", ge=0)
    depth: float = option(0.0, help="one more hidden layer, after relu; what the network computes stays", ge=0)
    activation: float = option(0.0, help="another nonlinearity of the hidden layers, with the same weights", ge=0)
    parameters: float = option(0.0, help="dormant units start again, and some weights get Gaussian noise", ge=0)

    def __post_init__(self) -> None:
        validate(self)
        if not any(getattr(self, item.name) for item in fields(self)):
            raise ConfigError("the probabilities of all kinds of mutation are 0; give none=1 to mutate nothing")


@dataclass(frozen=True)
class EvolutionConfig(ABC):
    """The options of one kind of evolution; registered under its name, such as `tournament`.

    Members of a population train one after the other, are evaluated on the same episodes, and `select` says from which
    member each place of the next generation continues. It is a pure function: it reads nothing but its arguments, and
    takes random numbers from `rng` alone.
    """

    registry: ClassVar[Registry[type[EvolutionConfig]]] = EVOLUTIONS
    unloaded: ClassVar[type[UnloadedEvolution]]
    name: ClassVar[str]

    population: int = option(8, **POPULATION)
    generation_frames: int = option(
        0,
        help="frames of each member between two selections, in whole iterations; 0: a twentieth of its share",
        unit="frames",
        ge=0,
        le=10**12,
    )
    fitness: Literal["return", "win_rate", "nash"] = option(
        "return",
        help="return: of one agent; where sides compete, win_rate: against `references`; nash: by Nash averaging over "
        "the population",
        choices=("return", "win_rate", "nash"),
    )
    together: bool = option(
        False,
        help="members whose networks have equal shapes advance in one batched product: ippo, mappo, iddpg, maddpg and "
        "matd3 with networks of kind mlp",
    )
    shared_replay: bool = option(
        False, help="off-policy members learn from one replay buffer, which has the experience of all"
    )
    member: int | None = option(
        None,
        help="the only member that this run trains, from 0. Runs in neighbouring folders train the others, "
        "at their own pace, and meet it through files. none: one training run trains all members",
        ge=0,
    )
    references: tuple[str, ...] = option(
        (), help="opponents of win_rate: folders of runs, or random; they stay the same"
    )
    fitness_window: int = option(3, **WINDOW)
    founders: Founders = option("equal", **FOUNDERS)
    mutable: tuple[str, ...] = option(
        (), help="options of algorithms that mutate, such as [lr,clip]; none: those that each algorithm names"
    )
    ranges: Mapping[str, tuple[float, float]] = option(
        {}, help="by option, minimum and maximum that replace its own, such as ranges.lr=[1e-4,1e-3]"
    )
    change: Change = option("one", **CHANGE)
    grow: float = option(1.2, **GROW)
    shrink: float = option(0.8, **SHRINK)
    resample: float = option(0.0, **RESAMPLE)
    factors: Mapping[str, tuple[float, float]] = option(
        {}, help="by option, factors that replace grow and shrink, such as factors.updates=[1.5,0.75]"
    )
    probability: Probabilities = option(Probabilities(), help="of each kind of mutation")

    new_units: tuple[int, ...] = option(
        (16, 32, 64), help="how many units a mutation of the width adds; one of these", unit="units", ge=1, le=65_536
    )
    max_units: int = option(1024, help="of a hidden layer", unit="units", ge=1, le=65_536)
    max_layers: int = option(6, help="hidden layers of a network", unit="layers", ge=1, le=100)
    sigma: float = option(0.1, help="of the noise on weights, relative to a weight's magnitude", ge=0, le=10)
    dormant_threshold: float = option(
        0.01, help="a unit is dormant if its gradient is at most this share of its layer's mean", ge=0, le=1
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.member is not None:
            self._check_member(self.member)
        for name, (up, down) in self.factors.items():
            if not 0 < down < 1 < up:
                at = f"evolution.factors.{name}"
                raise ConfigError(f"{at} needs one above 1 and one between 0 and 1; got {up:g} and {down:g}", at=at)

    def _check_member(self, member: int) -> None:
        """Raises ConfigError if there is no such member, or an option needs one run of all members."""
        if member >= self.population:
            raise ConfigError(
                f"evolution.member={member} is not in a population of {self.population}; valid: 0 to "
                f"{self.population - 1}",
                at="evolution.member",
            )
        needs_all = {"together": self.together, "shared_replay": self.shared_replay, "fitness": self.fitness == "nash"}
        for name in (name for name, is_set in needs_all.items() if is_set):
            value = str(getattr(self, name)).lower()
            raise ConfigError(
                f"evolution.{name}={value} needs one run of all members; evolution.member={member} trains one of "
                "them. Leave out one of the two",
                at=f"evolution.{name}",
            )

    @property
    def n_trained(self) -> int:
        """Members that one training run trains."""
        return self.population if self.member is None else 1

    @property
    def window(self) -> int:
        """Evaluations whose mean is the fitness; one with Nash averaging, since opponents differ between them."""
        return 1 if self.fitness == "nash" else self.fitness_window

    def mutable_of(self, algorithm: AlgorithmConfig) -> tuple[str, ...]:
        """The options of one algorithm that mutate."""
        return self.mutable or algorithm.mutable

    def bounds_of(self, name: str, declared: SearchRange) -> tuple[float, float]:
        """Minimum and maximum of an option."""
        return self.ranges.get(name, (declared.min, declared.max))

    def factors_of(self, name: str) -> tuple[float, float]:
        """Factors of a change of an option upward and downward."""
        return self.factors.get(name, (self.grow, self.shrink))

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

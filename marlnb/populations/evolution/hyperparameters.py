"""Mutation of hyper-parameters: which options of an experiment can change, and pure functions that change them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from marlnb.config import AlgorithmConfig, SearchRange
from marlnb.errors import ConfigError, unknown
from marlnb.evolution_config import EvolutionConfig
from marlnb.experiment import Experiment
from marlnb.populations.evolution.architecture import with_networks
from marlnb.specs import EnvSpec
from marlnb.values import hints


@dataclass(frozen=True)
class Mutable:
    """One option of an experiment that can be mutated.

    Attributes:
        group: of `algorithms`; empty: the option of `algorithm`.
        option: its name, as "lr".
        range: where it may move.
        whole: whether it is a whole number.
        factors: of a change upward and downward.
    """

    group: str
    option: str
    range: SearchRange
    whole: bool
    factors: tuple[float, float] = (1.2, 0.8)

    @property
    def path(self) -> str:
        return f"algorithms.{self.group}.{self.option}" if self.group else f"algorithm.{self.option}"

    def value(self, experiment: Experiment) -> float:
        """The value that is in effect: of `lr_critic=none`, the learning rate."""
        algorithm = self._algorithm(experiment)
        value = getattr(algorithm, self.option)
        return value if value is not None else getattr(algorithm, self.option.removesuffix("_critic"))

    def set(self, experiment: Experiment, value: float) -> Experiment:
        """The experiment with another value. Raises ConfigError if it does not fit the other options."""
        changed = replace(self._algorithm(experiment), **{self.option: value})
        if self.group:
            return replace(experiment, algorithms={**experiment.algorithms, self.group: changed})
        return replace(experiment, algorithm=changed)

    def _algorithm(self, experiment: Experiment) -> AlgorithmConfig:
        return experiment.algorithms[self.group] if self.group else experiment.algorithm


def mutables(experiment: Experiment, spec: EnvSpec) -> tuple[Mutable, ...]:
    """The options that the experiment's evolution mutates, of every algorithm that a group learns with.

    Raises:
        ConfigError: `evolution.mutable` names an option that no algorithm has, or one that cannot be mutated; or
            `evolution.ranges` or `evolution.factors` names one that does not mutate.
    """
    config = experiment.evolution
    assert config is not None
    algorithms = {name: experiment.algorithms[name] for name in spec.group_names if name in experiment.algorithms}
    if set(spec.group_names) - set(algorithms):
        algorithms = {"": experiment.algorithm, **algorithms}
    algorithms = {name: algorithm for name, algorithm in algorithms.items() if algorithm.learns}
    _check_names(config, algorithms)
    return tuple(
        _mutable(config, algorithm, group, option)
        for group, algorithm in algorithms.items()
        for option in _searchable(algorithm)
        if option in config.mutable_of(algorithm)
    )


def options_of(experiment: Experiment, targets: Iterable[Mutable]) -> dict[str, Any]:
    """By path, the values that can mutate."""
    return {target.path: target.value(experiment) for target in targets}


def with_options(experiment: Experiment, targets: Iterable[Mutable], options: Mapping[str, Any]) -> Experiment:
    """The experiment with these values, those of networks included; none follows another one from then on.

    Raises:
        ConfigError: they do not fit.
    """
    experiment = with_networks(experiment, options)
    for target in targets:
        experiment = target.set(experiment, options[target.path])
    return experiment


def draw(rng: np.random.Generator, target: Mutable, experiment: Experiment) -> float:
    """A value drawn from the whole range, uniform on its scale."""
    low, high = target.range.min, target.range.max
    if target.range.scale == "divisors":
        divisors = _divisors(target, experiment)
        return divisors[int(rng.integers(len(divisors)))]
    position = rng.uniform(_to_scale(low, target.range), _to_scale(high, target.range))
    return _fitted(_from_scale(position, target.range), target)


def change(value: float, factor: float, target: Mutable, experiment: Experiment) -> float:
    """A value moved by a factor on its scale, kept within its range. Whole numbers move by at least one.

    A value below the range, as an entropy bonus of 0, moves into it: a product of 0 would stay 0 for ever.
    """
    if target.range.scale == "divisors":
        return _next_divisor(int(value), factor, _divisors(target, experiment))
    inside = min(max(value, target.range.min), target.range.max)
    moved = _fitted(_times(inside, factor, target.range), target)
    if target.whole and moved == value:
        moved = _fitted(value + (1 if factor > 1 else -1), target)
    return moved


def mutate(
    rng: np.random.Generator, config: EvolutionConfig, experiment: Experiment, targets: tuple[Mutable, ...]
) -> tuple[Experiment, dict[str, list[float]]]:
    """The experiment with mutated options, and by path their old and new values.

    Raises:
        ConfigError: the new values do not fit together.
    """
    if not targets:
        raise ConfigError("no algorithm has options that mutate; name some: evolution.mutable=[lr]", at="evolution")
    chosen = targets if config.change == "all" else targets[(k := int(rng.integers(len(targets)))) : k + 1]
    changes = {}
    for target in chosen:
        old = target.value(experiment)
        is_drawn, grows = rng.random() < config.resample, rng.random() < 0.5
        new = draw(rng, target, experiment)  # so that each target takes the same random numbers
        if not is_drawn:
            new = change(old, target.factors[0 if grows else 1], target, experiment)
        experiment = target.set(experiment, new)
        changes[target.path] = [old, new]
    return experiment, changes


def _searchable(algorithm: AlgorithmConfig) -> dict[str, SearchRange]:
    """By option, the range of those that can be mutated."""
    declared = {item.name: item.metadata.get("search") for item in fields(algorithm)}
    return {name: search for name, search in declared.items() if search is not None}


def _check_names(config: EvolutionConfig, algorithms: Mapping[str, AlgorithmConfig]) -> None:
    valid = tuple(dict.fromkeys(name for algorithm in algorithms.values() for name in _searchable(algorithm)))
    existing = {item.name for algorithm in algorithms.values() for item in fields(algorithm)}
    for at, names in (
        ("evolution.mutable", config.mutable),
        ("evolution.ranges", tuple(config.ranges)),
        ("evolution.factors", tuple(config.factors)),
    ):
        for name in names:
            if name in existing and name not in valid:
                raise ConfigError(
                    f"{at} names {name!r}, which cannot be mutated: it has no range; valid: {', '.join(valid)}", at=at
                )
            if name not in valid:
                raise ConfigError(f"{at}: {unknown('option that can be mutated', name, valid)}", at=at)
    mutating = tuple(dict.fromkeys(name for each in algorithms.values() for name in config.mutable_of(each)))
    for at, names in (("evolution.ranges", tuple(config.ranges)), ("evolution.factors", tuple(config.factors))):
        for name in names:
            if name not in mutating:
                raise ConfigError(
                    f"{at}.{name} has no effect, since {name} does not mutate; leave it out, or add {name} to the "
                    f"options that do: evolution.mutable=[{','.join((*mutating, name))}]",
                    at=f"{at}.{name}",
                )


def _mutable(config: EvolutionConfig, algorithm: AlgorithmConfig, group: str, option: str) -> Mutable:
    declared = _searchable(algorithm)[option]
    low, high = config.bounds_of(option, declared)
    whole = hints(type(algorithm))[option] is int
    at = f"evolution.ranges.{option}"
    if not low < high:
        raise ConfigError(f"{at} needs a minimum below its maximum; got {low:g} and {high:g}", at=at)
    is_open = declared.scale in ("one_minus", "logit")
    if low < 0 or (low == 0 and declared.scale != "one_minus") or (is_open and high >= 1):
        bounds = "more than 0, and less than 1" if is_open else "more than 0"
        raise ConfigError(f"{at}: the scale of {option} is {declared.scale}, so its bounds must be {bounds}", at=at)
    for bound in (low, high):
        try:
            replace(algorithm, **{option: round(bound) if whole else bound})
        except ConfigError as error:
            raise ConfigError(f"{at}: {error}", at=at) from error
    return Mutable(group, option, replace(declared, min=low, max=high), whole, config.factors_of(option))


def _times(value: float, factor: float, search: SearchRange) -> float:
    """The factor multiplies the value, 1 - value, or the odds value / (1 - value)."""
    moved = value * factor
    if search.scale == "one_minus":
        moved = 1 - (1 - value) * factor
    elif search.scale == "logit":
        moved = moved / (moved + 1 - value)
    return float(f"{moved:.12g}")  # 0.0024, not 0.0024000000000000002


def _to_scale(value: float, search: SearchRange) -> float:
    if search.scale == "one_minus":
        return -math.log(1 - value)
    return math.log(value / (1 - value)) if search.scale == "logit" else math.log(value)


def _from_scale(position: float, search: SearchRange) -> float:
    if search.scale == "one_minus":
        return 1 - math.exp(-position)
    return 1 / (1 + math.exp(-position)) if search.scale == "logit" else math.exp(position)


def _fitted(value: float, target: Mutable) -> Any:
    """Within the range; whole if the option is."""
    value = min(max(value, target.range.min), target.range.max)
    return round(value) if target.whole else value


def _divisors(target: Mutable, experiment: Experiment) -> list[int]:
    number = getattr(experiment, target.range.of)
    pairs = (n for n in range(1, math.isqrt(number) + 1) if number % n == 0)
    everything = sorted({each for n in pairs for each in (n, number // n)})
    return [n for n in everything if target.range.min <= n <= target.range.max] or [number]


def _next_divisor(value: int, factor: float, divisors: list[int]) -> int:
    if factor > 1:
        return min((n for n in divisors if n > value), default=divisors[-1])
    return max((n for n in divisors if n < value), default=divisors[0])

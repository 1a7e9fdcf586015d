"""Tuned settings: files next to the environments, with one entry for each environment and algorithm that was searched.

    entries:
      - env: mpe/simple_spread
        algorithm: [ippo, mappo]
        options: {n_envs: 256, rollout_steps: 25, algorithm.lr: 2e-3}
        found_by: {command: python -m benchmarks.tune ..., seeds: [100, 101], budget: 60 s each, date: 2026-11-23}

`EnvConfig.tuned` names an environment's file. `marlnb.composition.starting_values` applies an entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from marlnb.codec import from_json, to_json
from marlnb.composition.variants import read_yaml
from marlnb.config import EnvConfig, option
from marlnb.errors import ConfigError
from marlnb.values import validate

PARTS = ("algorithm", "model", "critic", "env")
"""Parts of an experiment whose options an entry may set, such as `algorithm.lr`; of an environment, those of
`EnvConfig.tunable`."""
NOT_TUNED = (
    *("env", "seed", "device", "groups", "league", "evolution"),
    *("algorithms", "models", "critics", "loggers", "tuned"),
)
"""Options of an experiment that no entry sets: they say what is trained, and where."""


@dataclass(frozen=True)
class FoundBy:
    """How tuned settings were found."""

    command: str = option("", help="the command that searched")
    seeds: tuple[int, ...] = option((), help="seeds of the search")
    budget: str = option("", help="how long each setting was trained, and how many there were")
    date: str = option("", help="when")
    score: str = option("", help="what the settings reached")

    def __post_init__(self) -> None:
        validate(self)

    def __str__(self) -> str:
        seeds = f"seeds {', '.join(map(str, self.seeds))}" if self.seeds else ""
        facts = "; ".join(filter(None, (seeds, self.budget, self.date)))
        return f"{self.command or 'hand'}{f' ({facts})' if facts else ''}"


@dataclass(frozen=True)
class TunedBy:
    """Tuned settings from which an experiment was composed."""

    env: str = option(help="environment for which they were found")
    algorithm: str = option(help="algorithm for which they were found")
    found_by: FoundBy = option(help="how they were found")

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True)
class TunedEntry:
    """One entry of a file of tuned settings."""

    env: str | tuple[str, ...] = option(help="name or names of the environments")
    algorithm: str | tuple[str, ...] = option(help="name or names of the algorithms")
    options: Mapping[str, Any] = option(help="values by option, such as algorithm.lr")
    env_options: Mapping[str, Any] = option({}, help="options that the environment must have")
    found_by: FoundBy = option(FoundBy(), help="how they were found")

    def __post_init__(self) -> None:
        validate(self)
        for key in self.options:
            part, _, name = key.partition(".")
            if key in NOT_TUNED or (bool(name) != (part in PARTS) and key != "model"):
                raise ConfigError(
                    f"options.{key}: an entry sets options of an experiment (n_envs, ...), but none of "
                    f"{', '.join(NOT_TUNED)}, and those of {', '.join(f'{part}.*' for part in PARTS)}"
                )

    @property
    def model(self) -> str:
        """The kind of network that was tuned; `model.*` and `critic.*` are options of it."""
        return str(self.options.get("model", "mlp"))

    @property
    def iteration_frames(self) -> int | None:
        """Frames between two updates in the search; None if the entry does not say."""
        rollout: list[Any] = [self.options.get(name) for name in ("n_envs", "rollout_steps")]
        return prod(rollout) if all(isinstance(number, int) for number in rollout) else None

    def fits(self, env: EnvConfig, algorithm: str) -> bool:
        """Whether it was found for this environment, with its options, and this algorithm."""
        fits_options = all(to_json(getattr(env, name, None)) == value for name, value in self.env_options.items())
        return fits_options and env.name in _names(self.env) and algorithm in _names(self.algorithm)

    def part(self, part: str) -> dict[str, Any]:
        """The options of one part, by name; `""`: those of the experiment itself."""
        split = ((*key.rpartition("."), value) for key, value in self.options.items() if key != "model")
        return {name: value for head, _, name, value in split if head == part}


def tuned_entry(env: EnvConfig, algorithm: str) -> TunedEntry | None:
    """The first entry that was found for this environment and algorithm; None: they are untuned.

    Raises:
        ConfigError: the environment's file of tuned settings cannot be read.
    """
    return next((entry for entry in tuned_entries(type(env)) if entry.fits(env, algorithm)), None)


def tuned_entries(kind: type[EnvConfig]) -> tuple[TunedEntry, ...]:
    """The entries for the family of an environment.

    Raises:
        ConfigError: they cannot be read; the message names the file and the entry.
    """
    source = kind.tuned
    if source is None:
        return ()
    return _read_file(source) if isinstance(source, Path) else _read(source, f"tuned settings of {kind.name}")


@cache
def _read_file(file: Path) -> tuple[TunedEntry, ...]:
    content = read_yaml(file)
    if set(content) != {"entries"} or not isinstance(content["entries"], list):
        raise ConfigError(f"{file} must hold the key `entries` with a list; got {', '.join(content) or 'nothing'}")
    return _read(content["entries"], str(file))


def _read(entries: Sequence[Mapping[str, Any]], where: str) -> tuple[TunedEntry, ...]:
    try:
        return tuple(from_json(entry, TunedEntry, f"entries[{index}]") for index, entry in enumerate(entries))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names

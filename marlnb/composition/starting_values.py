"""The values from which an experiment starts, where no option was set: tuned ones, or else derived ones.

The order, from the weakest: an option's own default, a tuned entry or else a derived default, variants and experiment
files, overrides. What is here replaces only defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import ceil, lcm
from typing import Any

from marlnb.codec import defaults_json, from_json, to_json
from marlnb.composition.derived_defaults import algorithm_defaults, rollout_defaults
from marlnb.composition.tuned import TunedBy, TunedEntry, tuned_entry
from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS, EnvConfig
from marlnb.errors import ConfigError, unknown

Path = tuple[str, ...]
"""Where an option is, such as ("algorithms", "prey", "lr")."""
MIN_ITERATIONS = 10
"""A short training steps fewer environments at once, so that it still consists of some iterations."""
MAX_SEQUENCE = 32
"""Longest sequence of steps that is chosen to divide a rollout."""


@dataclass
class StartingValues:
    """What replaces the defaults of an experiment's options.

    Attributes:
        values: by the option's path; `("model",)` and `("critic",)` hold all options of a network of another kind than
            the default, or than the actor's.
        tuned: the tuned settings that were applied, one for each algorithm; empty: there are none.
    """

    values: dict[Path, Any] = field(default_factory=dict)
    tuned: list[TunedBy] = field(default_factory=list)


def starting_values(options: Mapping[str, Any], given: Collection[Path]) -> StartingValues:
    """The tuned or derived values of the options that were not set.

    Args:
        options: an experiment as plain JSON. Parts for a group, and the critic, may have options without a name: they
            inherit the others.
        given: paths of the options that overrides, variants or files set; `("critic",)`: no separate critic;
            `("model", "name")`: the kind of network was chosen.
    Raises:
        ConfigError: the environment or its tuned settings are not valid.
    """
    return _Start(deepcopy(dict(options)), frozenset(given)).start()


def set_value(options: Any, path: Path, value: Any) -> None:
    """Sets the option at a path of nested mappings."""
    for key in path[:-1]:
        if key not in options or options[key] is None:
            options[key] = {}
        options = options[key]
    options[path[-1]] = value


class _Start:
    """One composition: `options` as far as they are known, and `result`, what was changed in them."""

    def __init__(self, options: dict[str, Any], given: frozenset[Path]) -> None:
        self.options, self.given, self.result = options, given, StartingValues()
        self.algorithms: list[Path] = [("algorithm",), *self._named("algorithms")]
        self.networks: list[Path] = [("model",), ("critic",), *self._named("models"), *self._named("critics")]
        for part in (*self.algorithms, *self.networks):
            if "name" in (present := self._part(part)):
                kind = (ALGORITHMS if part in self.algorithms else MODELS).get(present["name"])
                set_value(self.options, part, {**defaults_json(kind), **present})
        self.env: EnvConfig = from_json(options["env"], ENVIRONMENTS.get(options["env"]["name"]), "env")
        self.entries = {part: tuned_entry(self.env, self._part(part)["name"]) for part in self.algorithms}

    def start(self) -> StartingValues:
        entry = self.entries[("algorithm",)]
        if entry is not None:
            self._start_env(entry)
            self._start_model(entry)
        rollout = entry.part("") if entry is not None else rollout_defaults(self.env.facts)
        self._put_all((), rollout, entry)
        if not self._has_lengths:
            return self.result  # the check of all values names the wrong one
        if entry is not None:
            self._start_networks(entry)
        if ("rollout_steps",) in self.result.values:
            self._fit_sequences()
        if ("n_envs",) in self.result.values:
            self._shorten_iterations()
        for part, its_entry in self.entries.items():
            self._start_algorithm(part, its_entry)
        return self.result

    @property
    def _iteration_frames(self) -> int:
        return int(self.options["n_envs"]) * int(self.options["rollout_steps"])

    @property
    def _has_lengths(self) -> bool:
        lengths: list[Any] = [self.options.get(name) for name in ("frames", "n_envs", "rollout_steps")]
        return all(type(value) in (int, float) and 0 < value < float("inf") for value in lengths)

    def _start_env(self, entry: TunedEntry) -> None:
        """What the agents see of the environment; never what their task is."""
        options, tunable = entry.part("env"), type(self.env).tunable
        if wrong := sorted(set(options) - set(tunable)):
            what = f"option in a tuned entry for {self.env.name}"
            raise ConfigError(unknown(what, f"env.{wrong[0]}", [f"env.{name}" for name in tunable]))
        self._put_all(("env",), options, entry)

    def _start_model(self, entry: TunedEntry) -> None:
        """The kind of network that was tuned, if none was chosen, with the options that were set."""
        name, options = ("model", "name"), self.options["model"]
        if "model" in entry.options and options["name"] != entry.model and not self._is_given(name):
            given = {key: value for key, value in options.items() if self._is_given(("model", key))}
            self._put(("model",), {"name": entry.model, **defaults_json(MODELS.get(entry.model)), **given})

    def _start_networks(self, entry: TunedEntry) -> None:
        """The options of networks of the entry's kind, and a critic of its own if the entry has one."""
        actor, critic = entry.part("model"), entry.part("critic")
        for part in self.networks:
            if self._part(part).get("name") == entry.model:
                self._put_all(part, {**actor, **(critic if "critic" in part[0] else {})}, entry)
        if critic and self.options["model"]["name"] == entry.model and "name" not in self._part(("critic",)):
            if self.options.get("critic") is None:
                self._put(("critic",), {**self.options["model"], **critic})
            else:
                self._put_all(("critic",), critic, None)

    def _fit_sequences(self) -> None:
        """Recurrent networks learn sequences that divide a rollout: the rollout follows given lengths, or they it."""
        stated = {part: self._part(part).get("sequence_length") for part in self.algorithms}
        lengths = {part: n for part, n in stated.items() if type(n) is int and n > 0 and self._kind(part).on_policy}
        if not lengths or not self._is_recurrent:
            return
        steps = self.options["rollout_steps"]
        given = [length for part, length in lengths.items() if self._is_given((*part, "sequence_length"))]
        if given:
            self._put(("rollout_steps",), lcm(*given) * ceil(steps / lcm(*given)))
            return
        for part, length in lengths.items():
            if steps % length:
                divisor = max(n for n in range(1, MAX_SEQUENCE + 1) if steps % n == 0)
                self._put((*part, "sequence_length"), divisor)

    def _shorten_iterations(self) -> None:
        n_envs = self.options["n_envs"]
        while n_envs > 1 and n_envs * self.options["rollout_steps"] * MIN_ITERATIONS > self.options["frames"]:
            n_envs //= 2
        self._put(("n_envs",), n_envs)

    def _start_algorithm(self, part: Path, entry: TunedEntry | None) -> None:
        if entry is None:
            self._put_all(part, algorithm_defaults(self._kind(part), self.env.facts, self._iteration_frames), None)
            return
        options, frames = entry.part("algorithm"), entry.iteration_frames
        if "updates" in options and frames is not None:  # as many per frame as in the search
            options["updates"] = max(1, round(options["updates"] * self._iteration_frames / frames))
        self._put_all(part, options, entry)
        name = self._part(part)["name"]
        settings = TunedBy(env=self.env.name, algorithm=name, found_by=entry.found_by)
        if settings not in self.result.tuned:  # several groups may learn by one algorithm
            self.result.tuned.append(settings)

    @property
    def _is_recurrent(self) -> bool:
        present = [(self._part(part), ".".join(part)) for part in self.networks]
        named = [(data, MODELS.get(data["name"]), path) for data, path in present if "name" in data]
        return any(from_json(data, kind, path).recurrent for data, kind, path in named)

    def _kind(self, part: Path) -> Any:
        return ALGORITHMS.get(self._part(part)["name"])

    def _named(self, parts: str) -> list[Path]:
        """The parts of groups or agents that have a name; the others inherit from these."""
        return [(parts, key) for key, data in (self.options.get(parts) or {}).items() if "name" in data]

    def _part(self, part: Path) -> Mapping[str, Any]:
        options: Any = self.options
        for key in part:
            options = options.get(key) or {}
        return options  # type: ignore[no-any-return]

    def _is_given(self, path: Path) -> bool:
        return any(path[: len(key)] == key for key in self.given)

    def _put_all(self, part: Path, values: Mapping[str, Any], entry: TunedEntry | None) -> None:
        known = self._part(part)
        for name, value in values.items():
            if entry is not None and name not in known:
                what = f"option in a tuned entry for {self.env.name}"
                raise ConfigError(unknown(what, ".".join((*part, name)), [".".join((*part, key)) for key in known]))
            path = (*part, name)
            if not any(key[: len(path)] == path for key in self.given):  # nor one of its own, as in algorithm.lr.x=1
                self._put(path, value)

    def _put(self, path: Path, value: Any) -> None:
        if not self._is_given(path):
            set_value(self.options, path, to_json(value))
            self.result.values[path] = to_json(value)

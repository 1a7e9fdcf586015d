"""BenchmarkSpec: which algorithms train in which environments with which seeds, from a YAML file or a call."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from marlnb.codec import to_json
from marlnb.errors import ConfigError, shown, unknown
from marlnb.experiment import Experiment
from marlnb.paths import expanded
from marlnb.text_files import read_yaml
from marlnb.trust import How, asking_for_classes, class_part, trust, trusted

MAX_SEEDS = 10_000
ABSOLUTE_FACTOR = 10  # the final evaluation plays this many times the usual episodes, as marl-eval recommends
_KEYS = ("algorithms", "environments", "seeds", "overrides", "evaluations", "compare", "config_dir")
_LABEL = re.compile(r"[\w.+=() -]+")

Overrides = str | Sequence[str] | Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class ExternalRuns:
    """External runs in marl-eval's JSON layout, for comparison.

    Attributes:
        path: a file, or a folder of files.
        label: added to the names of their algorithms.
        tasks: names of their tasks here, such as `{"pettingzoo/simple_spread": "mpe/simple_spread"}`.
    """

    path: str
    label: str
    tasks: Mapping[str, str]


@dataclass(frozen=True)
class BenchmarkRun:
    """Which run of a benchmark.

    Attributes:
        task: label of the environment.
        algorithm: label of the algorithm.
        seed: the seed.
    """

    task: str
    algorithm: str
    seed: int

    @property
    def folder(self) -> str:
        """Its folder, relative to the benchmark's folder."""
        return f"runs/{self.task}/{self.algorithm}/seed_{self.seed}"

    def __str__(self) -> str:
        return f"{self.task}, {self.algorithm}, seed {self.seed}"


@dataclass(frozen=True)
class PlannedRun(BenchmarkRun):
    """A run of a benchmark, with what is trained."""

    experiment: Experiment


@dataclass(frozen=True)
class BenchmarkSpec:
    """Algorithms × environments × seeds.

    Attributes:
        algorithms: overrides by label, in Hydra's grammar. The label is the algorithm's name unless the overrides
            contain `algorithm=` or `algorithms.<group>=`.
        environments: overrides by label, the task's name.
        seeds: the seeds.
        overrides: of every run; overrides of environments come later and those of algorithms last, and the last wins.
        evaluations: number of evaluations of a run, unless `evaluate_every` is given: one every `iterations //
            evaluations` iterations, so there can be more.
        compare: external runs.
        config_dir: folder of YAML variants, as for `Experiment.compose`; absolute, as the paths of `compare`.
        origin: the folder from which it was read, which may be another person's; None: the user states it.
    """

    algorithms: Mapping[str, tuple[str, ...]]
    environments: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    evaluations: int = 10
    compare: tuple[ExternalRuns, ...] = ()
    config_dir: str | None = None
    origin: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for what, labels in (("algorithms", self.algorithms), ("environments", self.environments)):
            if not labels:
                raise ConfigError(f"{what}: none given; give at least one")
            for label in labels:
                parts = label.split("/") if what == "environments" else [label]
                if not all(_LABEL.fullmatch(part) and part.strip(".") for part in parts):
                    raise ConfigError(
                        f"{what}: {label!r} is not a valid name; letters, digits, spaces and . + = ( ) _ - are valid"
                    )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds: expected their number, or different seeds of at least 0; got {list(self.seeds)}")
        if self.evaluations < 1:
            raise ConfigError(f"evaluations: expected at least 1; got {self.evaluations}")

    @staticmethod
    def make(
        algorithms: Overrides,
        environments: Overrides,
        seeds: int | Iterable[int] = 3,
        *,
        overrides: Sequence[str] = (),
        evaluations: int = 10,
        compare: Sequence[Any] = (),
        config_dir: str | os.PathLike[str] | None = None,
        relative_to: Path | None = None,
    ) -> BenchmarkSpec:
        """A spec from values in YAML or in a call.

        Args:
            algorithms: names, or overrides by label.
            environments: names, or overrides by label.
            seeds: number of seeds (from 0), or the seeds.
            overrides: of every run.
            evaluations: number of evaluations of a run.
            compare: paths, or mappings with path, label and tasks.
            config_dir: folder of YAML variants.
            relative_to: folder to which `config_dir` and the paths of `compare` refer; None: the working folder.
        Raises:
            ConfigError: an invalid value.
        """
        return BenchmarkSpec(
            algorithms=_labelled_overrides("algorithms", algorithms),
            environments=_labelled_overrides("environments", environments),
            seeds=_seeds(seeds),
            overrides=_overrides("overrides", overrides),
            evaluations=_whole_number("evaluations", evaluations),
            compare=tuple(_external_runs(value, relative_to or Path()) for value in compare),
            config_dir=_variants_folder(config_dir, relative_to or Path()),
        )

    def extended(
        self,
        *,
        overrides: Sequence[str] = (),
        compare: Sequence[Any] = (),
        config_dir: str | os.PathLike[str] | None = None,
    ) -> BenchmarkSpec:
        """This spec with more overrides of every run, more external runs, and another `config_dir` if one is given.

        Raises:
            ConfigError: an invalid value.
        """
        external = [_external_runs(value, Path()) for value in compare]
        return replace(
            self,
            overrides=(*self.overrides, *_overrides("overrides", overrides)),
            compare=(*self.compare, *(runs for runs in external if runs not in self.compare)),
            config_dir=_variants_folder(config_dir, Path()) or self.config_dir,
        )

    def labels(self) -> list[BenchmarkRun]:
        """All runs, by environment, then by seed, then by algorithm; nothing is composed."""
        return [
            BenchmarkRun(task, name, seed)
            for task in self.environments
            for seed in self.seeds
            for name in self.algorithms
        ]

    def runs(self) -> list[PlannedRun]:
        """All runs with their experiments. Code that an origin's experiments name is imported where it is needed.

        Raises:
            ConfigError: an override cannot be composed, or has no effect in any of its runs, or a run cannot start; the
                message names the run.
            TrustError: composing would import a class that the origin names and the user does not trust.
        """
        composed = self._compose_all()
        return [
            PlannedRun(run.task, run.algorithm, run.seed, replace(composed[run.task, run.algorithm], seed=run.seed))
            for run in self.labels()
        ]

    def trust(self, origin: str, how: How) -> None:
        """Allows the code that the experiments name, in this and later processes.

        Args:
            origin: the benchmark's folder.
            how: "trained", because the user trains them; "granted", because the user was asked.
        """
        for experiment in self._compose_all(grant=True).values():
            parts = Experiment.from_json(experiment.to_json(), origin=origin).unloaded.values()
            classes = [class_part(code.value, origin) for part in parts for code in part.code if code.option == "name"]
            for part in (*classes, *parts):
                trust([part], trusted(part) or how)

    def _compose_all(self, *, grant: bool = False) -> dict[tuple[str, str], Experiment]:
        words = {(task, name): self._words(task, name) for task in self.environments for name in self.algorithms}
        composed = {pair: self._compose(pair, words[pair], grant=grant) for pair in words}
        _check_effects(words, {pair: unused for pair, (_, unused) in composed.items()})
        return {pair: experiment for pair, (experiment, _) in composed.items()}

    def _words(self, task: str, name: str) -> list[str]:
        """The overrides of an algorithm's runs in an environment."""
        specific = (*self.environments[task], *self.algorithms[name])
        words = [*self.overrides, *specific]
        if not any(word.startswith("env=") for word in specific):
            words.insert(0, f"env={task}")
        if not any(word.startswith(("algorithm=", "algorithms.")) for word in self.algorithms[name]):
            words.append(f"algorithm={name}")
        if any(word.startswith("seed=") for word in words):
            raise ConfigError("a benchmark does not accept the override seed=; give seeds instead")
        return words

    def _compose(self, pair: tuple[str, str], words: Sequence[str], *, grant: bool) -> tuple[Experiment, list[str]]:
        """The experiment of a task and an algorithm, and its overrides that have no effect, with the reasons."""
        where = ", ".join(pair)
        try:
            with asking_for_classes(self.origin, where, grant=grant) if self.origin else nullcontext():
                experiment = Experiment.compose(*words, config_dir=self.config_dir)
                experiment.check_without_env()
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if experiment.evolution is not None:
            raise ConfigError(
                f"{where}: a benchmark does not accept evolution=, because it compares evaluations, which a population "
                "does not have; train populations with marlnb train"
            )
        unused = experiment.unused_overrides(words)
        if self.origin:
            experiment = Experiment.from_json(experiment.to_json(), origin=self.origin)
        if not experiment.evaluate_every:
            experiment = replace(experiment, evaluate_every=max(1, experiment.iterations // self.evaluations))
        if not any(word.startswith("checkpoint_every=") for word in words):
            # a checkpoint at each evaluation keeps the policy of the best one
            experiment = replace(experiment, checkpoint_every=experiment.evaluate_every)
        return experiment, unused

    def to_json(self) -> dict[str, Any]:
        """JSON from which `from_json` makes an equal spec."""
        return {key: value for key, value in to_json(self).items() if key != "origin"}

    @staticmethod
    def from_json(data: Mapping[str, Any], *, origin: str | None = None) -> BenchmarkSpec:
        """The spec that `to_json` wrote.

        Args:
            data: plain JSON.
            origin: the folder of `data`, if it may come from anyone: nothing that it names is imported unless the
                user trusts it.
        Raises:
            ConfigError: an unknown key, a missing one or an invalid value.
        """
        return replace(_spec_from(data, "benchmark.json", None), origin=origin)


def read_spec(path: str | os.PathLike[str]) -> BenchmarkSpec:
    """A spec from a YAML file.

    Raises:
        ConfigError: it cannot be read, or has an unknown or a missing key.
    """
    file = expanded(path)
    data = read_yaml(file)
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file}: expected a mapping with {', '.join(_KEYS)}; got a {type(data).__name__}")
    return _spec_from(data, str(file), file.parent)


def _spec_from(data: Mapping[str, Any], where: str, relative_to: Path | None) -> BenchmarkSpec:
    for key in data:
        if key not in _KEYS:
            raise ConfigError(f"{where}: {unknown('key', str(key), _KEYS)}")
    for key in _KEYS[:3]:
        if key not in data:
            raise ConfigError(f"{where}: the key {key} is missing")
    try:
        options = {key: data[key] for key in _KEYS if key in data}
        options |= {key: data.get(key) or () for key in ("overrides", "compare")}
        if not isinstance(options["compare"], Sequence) or isinstance(options["compare"], str):
            raise ConfigError(f"compare: expected a list of paths; got {shown(options['compare'])}")
        return BenchmarkSpec.make(**options, relative_to=relative_to)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_effects(words: Mapping[tuple[str, str], list[str]], unused: Mapping[tuple[str, str], list[str]]) -> None:
    """Raises ConfigError if an override has no effect in any run that has it.

    Args:
        words: by task and algorithm, the overrides.
        unused: those without effect, with the reasons.
    """
    for pair, texts in unused.items():
        for text in texts:
            override = text.partition(" has no effect")[0]
            others = [unused[each] for each in words if override in words[each]]
            if all(any(each.startswith(f"{override} has no effect") for each in other) for other in others):
                raise ConfigError(f"{', '.join(pair)}: {text}")


def _labelled_overrides(what: str, value: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, Mapping):
        return {str(label): _overrides(f"{what}: {label}", words or ()) for label, words in value.items()}
    if not isinstance(value, Sequence) or not all(isinstance(label, str) for label in value):
        raise ConfigError(f"{what}: expected names, or overrides by name; got {value!r}")
    if len(set(value)) < len(value):
        raise ConfigError(f"{what}: a name is given twice: {', '.join(value)}")
    return dict.fromkeys(value, ())


def _overrides(where: str, value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str) and "=" in word for word in words):
        raise ConfigError(f"{where}: expected a list of key=value, e.g. [algorithm.lr=1e-3]; got {value!r}")
    return tuple(words)


def _seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        if value > MAX_SEEDS:
            raise ConfigError(f"seeds: expected at most {MAX_SEEDS:,}; got {shown(value, 40)}")
        return tuple(range(value))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"seeds: expected their number, or a list of seeds; got {value!r}")
    return tuple(_whole_number("seeds", seed) for seed in value)


def _whole_number(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{what}: expected a whole number; got {value!r}")
    return value


def _variants_folder(value: Any, relative_to: Path) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"config_dir: expected a folder; got {shown(value)}")
    return str((relative_to / expanded(value)).absolute())


def _external_runs(value: Any, relative_to: Path) -> ExternalRuns:
    data: Any = {"path": value} if isinstance(value, str | os.PathLike) else value
    if not isinstance(data, Mapping) or "path" not in data:
        raise ConfigError(f"compare: expected a path, or a mapping with path, label and tasks; got {value!r}")
    for key in data:
        if key not in ("path", "label", "tasks"):
            raise ConfigError(f"compare: {unknown('key', str(key), ('path', 'label', 'tasks'))}")
    path = (relative_to / expanded(data["path"])).resolve()
    if not path.exists():
        raise ConfigError(f"compare: {path} does not exist")
    return ExternalRuns(str(path), str(data.get("label", path.stem)), dict(data.get("tasks") or {}))

"""Plan: which algorithms are trained in which environments under which seeds, as one YAML file or call states it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from marlnb.errors import ConfigError, unknown
from marlnb.experiment import Experiment

ABSOLUTE_FACTOR = 10  # a run ends with an evaluation of this many times the usual episodes, as marl-eval has it
_KEYS = ("algorithms", "environments", "seeds", "overrides", "evaluations", "compare")
_LABEL = re.compile(r"[\w.+=() -]+")

Overrides = str | Sequence[str] | Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class Source:
    """Runs made elsewhere, in marl-eval's JSON layout, to be compared with.

    Attributes:
        path: a file, or a folder of files.
        label: added to their algorithms' names.
        tasks: how their tasks are called here, as `{"pettingzoo/simple_spread": "mpe/simple_spread"}`.
    """

    path: str
    label: str
    tasks: Mapping[str, str]


@dataclass(frozen=True)
class PlannedRun:
    """One run: its place in the benchmark and what it trains."""

    task: str
    algorithm: str
    seed: int
    experiment: Experiment

    @property
    def folder(self) -> str:
        """Where it lies in the benchmark's folder."""
        return f"runs/{self.task}/{self.algorithm}/seed_{self.seed}"

    def __str__(self) -> str:
        return f"{self.task}, {self.algorithm}, seed {self.seed}"


@dataclass(frozen=True)
class BenchmarkSpec:
    """Algorithms × environments × seeds.

    Attributes:
        algorithms: by label, overrides in Hydra's grammar. A label is the algorithm's name unless `algorithm=` or
            `algorithms.<group>=` is among them.
        environments: by label (the task's name), overrides likewise.
        overrides: of every run; those of environments come after, those of algorithms last, the later of two counts.
        evaluations: of a run, evenly spread, where no `evaluate_every` is given.
        compare: runs made elsewhere.
        config_dir: the folder of YAML variants, as `Experiment.compose` takes it.
    """

    algorithms: Mapping[str, tuple[str, ...]]
    environments: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    evaluations: int = 10
    compare: tuple[Source, ...] = ()
    config_dir: str | None = None

    def __post_init__(self) -> None:
        for what, labels in (("algorithms", self.algorithms), ("environments", self.environments)):
            if not labels:
                raise ConfigError(f"{what}: none given")
            for label in labels:
                parts = label.split("/") if what == "environments" else [label]
                if not all(_LABEL.fullmatch(part) and part.strip(".") for part in parts):
                    raise ConfigError(f"{what}: {label!r} cannot name a folder; letters, digits and . + = ( ) _ - can")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds: a number of them, or different ones from 0 on; got {list(self.seeds)}")
        if self.evaluations < 1:
            raise ConfigError(f"evaluations: 1 or more; got {self.evaluations}")

    @staticmethod
    def make(
        algorithms: Overrides,
        environments: Overrides,
        seeds: int | Iterable[int],
        *,
        overrides: Sequence[str] = (),
        evaluations: int = 10,
        compare: Sequence[Any] = (),
        config_dir: str | os.PathLike[str] | None = None,
        beside: Path | None = None,
    ) -> BenchmarkSpec:
        """A plan of plain values, as they come from YAML or a call.

        Args:
            seeds: how many (from 0 on), or which.
            compare: paths, or mappings with path, label and tasks; relative to `beside`, else to here.
        Raises:
            ConfigError: a value that cannot be one.
        """
        return BenchmarkSpec(
            algorithms=_parts("algorithms", algorithms),
            environments=_parts("environments", environments),
            seeds=_seeds(seeds),
            overrides=_overrides("overrides", overrides),
            evaluations=_whole("evaluations", evaluations),
            compare=tuple(_source(one, beside or Path()) for one in compare),
            config_dir=None if config_dir is None else os.fspath(config_dir),
        )

    def runs(self) -> list[PlannedRun]:
        """Every run, environment by environment, each seed of all algorithms before the next seed.

        Raises:
            ConfigError: an override that cannot be composed; the message says of which.
        """
        composed = {(task, name): self._compose(task, name) for task in self.environments for name in self.algorithms}
        return [
            PlannedRun(task, name, seed, replace(composed[task, name], seed=seed))
            for task in self.environments
            for seed in self.seeds
            for name in self.algorithms
        ]

    def _compose(self, task: str, name: str) -> Experiment:
        own = (*self.environments[task], *self.algorithms[name])
        words = [*self.overrides, *own]
        if not any(word.startswith("env=") for word in own):
            words.insert(0, f"env={task}")
        if not any(word.startswith(("algorithm=", "algorithms.")) for word in self.algorithms[name]):
            words.append(f"algorithm={name}")
        if any(word.startswith("seed=") for word in words):
            raise ConfigError("seed= is no override of a benchmark; its seeds are")
        try:
            experiment = Experiment.compose(*words, config_dir=self.config_dir)
        except ConfigError as error:
            raise ConfigError(f"{task}, {name}: {error}") from error
        if not experiment.evaluate_every:
            experiment = replace(experiment, evaluate_every=max(1, experiment.iterations // self.evaluations))
        if not any(word.startswith("checkpoint_every=") for word in words):
            # so that the best evaluation's policy is kept
            experiment = replace(experiment, checkpoint_every=experiment.evaluate_every)
        return experiment

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` turns into an equal plan."""
        return {
            "algorithms": {name: list(words) for name, words in self.algorithms.items()},
            "environments": {name: list(words) for name, words in self.environments.items()},
            "seeds": list(self.seeds),
            "overrides": list(self.overrides),
            "evaluations": self.evaluations,
            "compare": [{"path": s.path, "label": s.label, "tasks": dict(s.tasks)} for s in self.compare],
            "config_dir": self.config_dir,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BenchmarkSpec:
        return _plan_of(data, "benchmark.json", None, config_dir=data.get("config_dir"))


def read_spec(path: str | os.PathLike[str], *, config_dir: str | os.PathLike[str] | None = None) -> BenchmarkSpec:
    """A plan from a YAML file.

    Raises:
        ConfigError: it cannot be read, has an unknown key, or lacks one.
    """
    file = Path(path).expanduser()
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read as a plan in YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file}: a plan is a mapping with {', '.join(_KEYS)}; got {type(data).__name__}")
    return _plan_of(data, str(file), file.parent, config_dir=config_dir)


def _plan_of(data: Mapping[str, Any], where: str, beside: Path | None, *, config_dir: Any) -> BenchmarkSpec:
    for key in data:
        if key not in (*_KEYS, "config_dir"):
            raise ConfigError(f"{where}: {unknown('key', str(key), _KEYS)}")
    for key in _KEYS[:3]:
        if key not in data:
            raise ConfigError(f"{where}: lacks {key}")
    try:
        return BenchmarkSpec.make(
            data["algorithms"],
            data["environments"],
            data["seeds"],
            overrides=data.get("overrides") or (),
            evaluations=data.get("evaluations", 10),
            compare=data.get("compare") or (),
            config_dir=config_dir,
            beside=beside,
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _parts(what: str, spec: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(spec, str):
        spec = spec.split(",")
    if isinstance(spec, Mapping):
        return {str(label): _overrides(f"{what}: {label}", words or ()) for label, words in spec.items()}
    if not isinstance(spec, Sequence) or not all(isinstance(label, str) for label in spec):
        raise ConfigError(f"{what}: names, or overrides by name; got {spec!r}")
    if len(set(spec)) < len(spec):
        raise ConfigError(f"{what}: a name stands there twice: {', '.join(spec)}")
    return dict.fromkeys(spec, ())


def _overrides(where: str, spec: Any) -> tuple[str, ...]:
    words = [spec] if isinstance(spec, str) else spec
    if not isinstance(words, Sequence) or not all(isinstance(word, str) and "=" in word for word in words):
        raise ConfigError(f"{where}: overrides are a list of key=value, as [algorithm.lr=1e-3]; got {spec!r}")
    return tuple(words)


def _seeds(spec: Any) -> tuple[int, ...]:
    if isinstance(spec, int) and not isinstance(spec, bool):
        return tuple(range(spec))
    if isinstance(spec, str) or not isinstance(spec, Iterable):
        raise ConfigError(f"seeds: a number of them, or which; got {spec!r}")
    return tuple(_whole("seeds", seed) for seed in spec)


def _whole(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{what}: a whole number; got {value!r}")
    return value


def _source(spec: Any, beside: Path) -> Source:
    data: Any = {"path": spec} if isinstance(spec, str | os.PathLike) else spec
    if not isinstance(data, Mapping) or "path" not in data:
        raise ConfigError(f"compare: a path, or path, label and tasks; got {spec!r}")
    for key in data:
        if key not in ("path", "label", "tasks"):
            raise ConfigError(f"compare: {unknown('key', str(key), ('path', 'label', 'tasks'))}")
    path = (beside / Path(data["path"]).expanduser()).resolve()
    if not path.exists():
        raise ConfigError(f"compare: nothing at {path}")
    return Source(str(path), str(data.get("label", path.stem)), dict(data.get("tasks") or {}))

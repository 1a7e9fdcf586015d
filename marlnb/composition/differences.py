"""What was set in an experiment: the options that differ from the values with which its composition started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from marlnb.codec import defaults_json, to_json
from marlnb.composition.composed import Composed
from marlnb.composition.override_parsing import DEFAULTS, GROUP_OF, GROUP_OF_EACH
from marlnb.composition.starting_values import Path, set_value, starting_values
from marlnb.composition.tuned import tuned_entry
from marlnb.plugins.unloaded import Unloaded

PARTS, PARTS_BY_GROUP = tuple(GROUP_OF), tuple(GROUP_OF_EACH)
LENGTHS = ("frames", "rollout_steps", "n_envs")
"""Options on which the starting values of others depend, those first on which most depend."""


class Difference(NamedTuple):
    """One option that was set.

    Attributes:
        key: the option's path, such as `algorithm.lr`; of a part alone: its name was chosen.
        value: as plain JSON.
        default: the value with which the composition started; an empty text if there is none.
    """

    key: str
    value: Any
    default: Any


def differences(experiment: Composed) -> list[Difference]:
    """The options that were set, parts first; composed again they give the same experiment.

    If it was not composed, or its tuned settings are not those of this version any more, everything that differs from
    the options' own defaults, and `tuned=False`.
    """
    base = _Base(experiment)
    if base.data["tuned"] is None or base.unloaded or base.tuned != base.data["tuned"]:
        base.is_tuned = False
    changes = list(base.differences())
    return changes if base.is_tuned else [*changes, Difference("tuned", False, True)]


def started_values(experiment: Composed) -> dict[str, tuple[Any, Any]]:
    """Tuned and derived values that were not changed, each with the option's own default, by `algorithm.lr`.

    Empty for an experiment that was composed with tuned=false.
    """
    base = _Base(experiment)
    if base.data["tuned"] is None or base.unloaded or base.tuned != base.data["tuned"]:
        return {}
    set_by_user = {difference.key for difference in base.differences()}
    values: dict[str, tuple[Any, Any]] = {}
    for path, value in base.start().values.items():
        key, own = ".".join(path), _at(base.own, path)
        if key not in set_by_user and value != own and not isinstance(value, Mapping):
            values[key] = (value, own)
    return values


class _Base:
    """The same parts with their defaults, to which the options that were set are added one by one."""

    def __init__(self, experiment: Composed) -> None:
        self.data, self.env = experiment.to_json(), experiment.env
        self.is_tuned = True
        parts = {part: getattr(experiment, part) for part in PARTS}
        for several in PARTS_BY_GROUP:
            parts |= {f"{several}.{name}": config for name, config in getattr(experiment, several).items()}
        self.unloaded = any(isinstance(config, Unloaded) for config in parts.values())
        self.own = {**self.data, **defaults_json(type(experiment))}
        for part, config in parts.items():
            value = None if config is None else {"name": config.name, **defaults_json(type(config))}
            set_value(self.own, tuple(part.split(".", 1)), value)
        self.given: set[Path] = {("model", "name")}  # `options` has it already
        self.tunable = {name: self.own["env"][name] for name in type(self.env).tunable}
        self.options = {**deepcopy(self.own), "env": {**self.data["env"], **self.tunable}, "critic": None}

    @property
    def tuned(self) -> Any:
        """The tuned settings that a composition of the same parts starts from."""
        return to_json(tuple(starting_values(self.options, self.given).tuned))

    def start(self) -> Any:
        return starting_values(self.options, self.given)

    def differences(self) -> Iterator[Difference]:
        by_part: dict[str, list[Difference]] = {}
        scalars = [name for name in self.data if name not in (*PARTS, *PARTS_BY_GROUP, "tuned")]
        lengths = list(self._changed([(name,) for name in (*LENGTHS, *scalars) if name in scalars]))
        for part in ("env", "model", "critic", "algorithm", "league", "evolution", *PARTS_BY_GROUP):
            if part in PARTS_BY_GROUP:
                by_part[part] = [change for name in self.data[part] for change in self._of_part((part, name))]
            elif part == "critic":
                by_part[part] = list(self._of_critic())
            elif self.data[part] is None:  # no league or evolution
                by_part[part] = []
            else:
                by_part[part] = list(self._of_part((part,)))
        for part in (*PARTS, *PARTS_BY_GROUP):
            yield from by_part[part]
        yield from sorted(lengths, key=lambda change: scalars.index(change.key))

    def _of_part(self, part: Path) -> Iterator[Difference]:
        name, key = _at(self.data, part)["name"], ".".join(part)
        default = f"as {part[0].removesuffix('s')}" if len(part) > 1 else self._default_name(key)
        if name != default:
            yield Difference(key, name, default)
        options = [(*part, option) for option in _at(self.data, part) if option != "name"]
        yield from self._changed([leaf for option in options for leaf in self._leaves(option)])

    def _default_name(self, part: str) -> str:
        if part == "model" and self.is_tuned and not self.unloaded:
            entry = tuned_entry(self.env, self.data["algorithm"]["name"])
            return DEFAULTS["model"] if entry is None else entry.model
        return DEFAULTS.get(part, "")

    def _leaves(self, option: Path) -> Iterator[Path]:
        """The options within an option that is a dataclass itself, such as `league.main`."""
        value, default = _at(self.data, option), _at(self.own, option)
        if isinstance(value, Mapping) and isinstance(default, Mapping) and value and value.keys() == default.keys():
            for name in value:
                yield from self._leaves((*option, name))
        else:
            yield option

    def _of_critic(self) -> Iterator[Difference]:
        """None if the critic is what the composition makes of the other options."""
        critic: Any = self.data["critic"]
        started: Any = self._started()["critic"]
        if critic == started:
            return
        if critic is None:
            self.given.add(("critic",))
            yield Difference("critic", None, started["name"])
            return
        self.options["critic"] = deepcopy(self.own["critic"])
        yield from self._of_part(("critic",))

    def _changed(self, paths: list[Path]) -> Iterator[Difference]:
        started = self._started()
        for path in dict.fromkeys(paths):
            value, has_default = _at(self.data, path), path[-1] in _at(self.own, path[:-1])
            is_task = path[0] == "env" and path[1] not in self.tunable  # of which `options` has the values already
            default = _at(self.own if is_task else started, path) if has_default else ""
            if value != default or not has_default:
                yield Difference(".".join(path), value, default)
                self.given.add(path)
                set_value(self.options, path, value)
                started = self._started()

    def _started(self) -> dict[str, Any]:
        options = deepcopy(self.options)
        if self.is_tuned:
            for path, value in starting_values(self.options, self.given).values.items():
                set_value(options, path, value)
        return options


def _at(options: Any, path: Path) -> Any:
    for key in path:
        options = options.get(key) if isinstance(options, Mapping) else None
    return options

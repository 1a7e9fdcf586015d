"""Parses overrides: which parts an experiment consists of, and which options to set in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from marlnb.composition.variants import Variants, experiment_choices
from marlnb.config import ENVIRONMENTS
from marlnb.errors import ConfigError, shown

MAX_LENGTH, MAX_KEY_LENGTH, MAX_DEPTH = 50_000, 200, 30  # of an override
MAX_COMMAS = 2000  # Hydra's parser takes 2 seconds for a list of so many, and four times as long for twice as many
MAX_SHOWN = 400  # characters of Hydra's messages
DEFAULTS = {"algorithm": "mappo", "model": "mlp"}
GROUP_OF = {
    "env": "env",
    "algorithm": "algorithm",
    "model": "model",
    "critic": "model",
    "league": "league",
    "evolution": "evolution",
}
EXAMPLES = {**DEFAULTS, "env": "mpe/simple_spread", "league": "alphastar", "evolution": "tournament"}
GROUP_OF_EACH = {"algorithms": "algorithm", "models": "model", "critics": "model"}  # by group of agents
PARTS = (*GROUP_OF, *(f"{parts}.<group>" for parts in GROUP_OF_EACH))


@dataclass
class OverrideRequest:
    """The parsed overrides.

    Attributes:
        experiment: the name of an experiment's file.
        choices: part -> its name.
        chosen: the parts whose names overrides or the experiment's file state.
        options: options from the experiment's file.
        values: overrides of single options, for Hydra.
        settings: (path, value) of each of these.
        tuned: whether options start from tuned or derived values; `tuned=false`: from their own defaults.
    """

    experiment: str | None = None
    choices: dict[str, str | None] = field(default_factory=dict)
    chosen: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    settings: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)
    tuned: bool = True


def read_overrides(overrides: Sequence[str], variants: Variants) -> OverrideRequest:
    """Parses overrides.

    Raises:
        ConfigError: not an override of one value, a deletion, a sweep, or no environment.
    """
    for text in overrides:
        if not isinstance(text, str):
            raise ConfigError(f"overrides are strings, such as 'algorithm.lr=3e-4'; got {text!r}")
    parsed = [_parse(text) for text in overrides]
    request = OverrideRequest()
    for override in parsed:
        if override.key_or_group == "experiment":
            _take_experiment(request, str(override.value()), variants)
    for override in parsed:
        key = override.key_or_group
        part, _, last = key.rpartition(".")
        if is_part(key):
            request.choices[key] = _chosen(key, override.value())
            if request.choices[key] is None:
                _drop_options(request.options, key)
        elif key == "tuned":
            request.tuned = _read_tuned(override.value())
        elif last == "name" and is_part(part):
            raise ConfigError(f"{key} cannot be set directly; use {part}=<name>")
        elif key != "experiment":
            request.values.append(f"++{key}={(override.input_line or '').partition('=')[2]}")
            request.settings.append((tuple(key.split(".")), override.value()))
    request.chosen = frozenset(request.choices)
    request.choices = {**DEFAULTS, **request.choices}
    for part in DEFAULTS:
        if request.choices.get(part) is None:
            raise ConfigError(f"{part} takes a name, such as {part}={DEFAULTS[part]}; got none")
    if request.choices.get("env") is None:
        families = _families({*ENVIRONMENTS.names(), *variants.names("env")})
        raise ConfigError(
            f"no environment; add env=<name>, such as env={EXAMPLES['env']}. Valid: {families}; `marlnb list envs` "
            "shows the names"
        )
    return request


def _families(names: Iterable[str]) -> str:
    """The number of names in each family, such as `mpe/… (9)`; a name without a family stands for itself."""
    counts = Counter(family + slash for family, slash, _ in (name.partition("/") for name in sorted(names)))
    return ", ".join(f"{family}… ({n})" if family.endswith("/") else family for family, n in counts.items())


def named_parts(overrides: Sequence[str], variants: Variants) -> Iterator[tuple[str, str | None]]:
    """(part, name) of each part that overrides choose, including those in an experiment's file."""
    for text in overrides:
        override = _parse(text)
        if override.key_or_group == "experiment":
            request = OverrideRequest()
            _take_experiment(request, str(override.value()), variants)
            yield from request.choices.items()
        elif is_part(override.key_or_group):
            yield override.key_or_group, _chosen(override.key_or_group, override.value())


def _parse(text: str) -> Override:
    _check_size(text)
    if "=" not in text and not text.startswith("~"):  # ~key deletes in Hydra's grammar
        raise ConfigError(
            f"cannot read {shown(text)} as key=value, for instance algorithm.lr=3e-4: it has no '='. The experiment of "
            "a YAML file is experiment=NAME, in the folder that --config-dir or config_dir= names"
        )
    try:
        override = OverridesParser.create().parse_override(text)
    except (HydraException, ValueError) as error:  # ValueError: an integer of 5,000 digits
        raise ConfigError(
            f"cannot read {shown(text)} as key=value, for instance algorithm.lr=3e-4: {str(error)[:MAX_SHOWN]}"
        ) from error
    if override.is_delete():
        raise ConfigError(f"{text!r}: options cannot be deleted; every option has a value")
    if override.package is not None:
        raise ConfigError(f"{text!r}: write algorithms.<group>=, models.<group>= or critics.<group>= instead of '@'")
    if not override.key_or_group:
        raise ConfigError(f"cannot read {shown(text)} as key=value, for instance algorithm.lr=3e-4: the key is missing")
    if override.key_or_group.partition(".")[0] == "hydra":
        raise ConfigError(
            f"no option {override.key_or_group!r}: marlnb uses Hydra's grammar, but none of its own options"
        )
    if override.is_sweep_override():
        raise ConfigError(
            f"{text!r} describes several experiments; this composes one. `marlnb train {text} ...` trains each, "
            "`marlnb benchmark` also compares them. Quote a string with commas, write a list as [1,2]"
        )
    return override


def _check_size(text: str) -> None:
    """Raises ConfigError for what no option needs, and what Hydra or the file system would fail on."""
    key, depth, deepest = text.partition("=")[0], 0, 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    for what, size, limit in (
        ("characters", len(text), MAX_LENGTH),
        ("characters before the =", len(key), MAX_KEY_LENGTH),
        ("nested brackets", deepest, MAX_DEPTH),
        ("commas", text.count(","), MAX_COMMAS),
    ):
        if size > limit:
            raise ConfigError(f"an override has at most {limit:,} {what}; {shown(text, 80)} has {size:,}")


def is_part(key: str) -> bool:
    """Whether a key chooses a part by name, such as `env` and `models.speaker`."""
    head, _, group = key.partition(".")
    return key in GROUP_OF or (head in GROUP_OF_EACH and bool(group) and "." not in group)


def _chosen(part: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise ConfigError(f"{part} takes a name, such as {part}={EXAMPLES[group_of(part)]}; got {shown(value)}")


def group_of(part: str) -> str:
    """The kind of a part, from whose names it is chosen: `models.speaker` is a model."""
    return GROUP_OF.get(part) or GROUP_OF_EACH[part.partition(".")[0]]


def _read_tuned(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"tuned is true or false: whether options start from tuned settings; got {shown(value)}")
    return value


def _take_experiment(request: OverrideRequest, name: str, variants: Variants) -> None:
    """Adds an experiment's file: names choose parts, everything else are options."""
    content = variants.read("experiment", name)
    where = variants.where("experiment", name)
    request.experiment = name
    request.choices.update(experiment_choices(content, where, is_part, PARTS))
    content.pop("defaults", None)
    request.tuned = _read_tuned(content.pop("tuned", True))
    for part in [*GROUP_OF, *GROUP_OF_EACH]:
        if part in content:
            content[part] = _take_part(request, part, content[part])
    request.options = {key: value for key, value in content.items() if value not in ({}, None)}


def _drop_options(options: dict[str, Any], part: str) -> None:
    """Removes the options that an experiment's file has for a part which an override removes."""
    head, _, group = part.partition(".")
    if not group:
        options.pop(head, None)
    elif isinstance(options.get(head), Mapping):
        options[head] = {name: value for name, value in options[head].items() if name != group}


def _take_part(request: OverrideRequest, part: str, value: Any) -> Any:
    if part in GROUP_OF_EACH:
        groups = value if isinstance(value, Mapping) else {}
        taken = {group: _take_part(request, f"{part}.{group}", item) for group, item in groups.items()}
        return taken or value
    if isinstance(value, Mapping):
        options = dict(value)
        if "name" in options:
            request.choices[part] = _chosen(part, options.pop("name"))
        return options
    request.choices[part] = _chosen(part, value)
    return {}

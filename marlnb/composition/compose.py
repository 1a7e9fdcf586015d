"""An experiment from overrides, `env=mpe/simple_spread algorithm.lr=3e-4`: Hydra's grammar and composition.

The registered dataclasses are the schema. Hydra receives them as plain nodes, and selects, places and merges those that
the overrides name. `marlnb.codec` then checks every key and value, with the same messages as for a file or a form.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from marlnb.codec import defaults_json, from_json, to_json
from marlnb.composition.interpolations import check_interpolations, has_interpolations
from marlnb.composition.override_parsing import (
    GROUP_OF,
    GROUP_OF_EACH,
    OverrideRequest,
    group_of,
    named_parts,
    read_overrides,
)
from marlnb.composition.starting_values import Path, set_value, starting_values
from marlnb.composition.variants import Variants, base_of
from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS, EnvConfig
from marlnb.errors import ConfigError, UnknownNameError, shown, unknown
from marlnb.evolution_config import EVOLUTIONS
from marlnb.league_config import LEAGUES
from marlnb.plugins.import_paths import is_import_path
from marlnb.plugins.registry import Registry

T = TypeVar("T")

REGISTRIES: dict[str, Registry[Any]] = {
    "env": ENVIRONMENTS,
    "algorithm": ALGORITHMS,
    "model": MODELS,
    "league": LEAGUES,
    "evolution": EVOLUTIONS,
}
MAX_BASES = 30  # of a variant
_PRIMARY = "marlnb_experiment"
_Node = tuple[str | None, str, dict[str, Any], str | None]  # group, name, content, package
_lock = threading.RLock()  # Hydra's state is global to the process


def compose(schema: type[T], *overrides: str, config_dir: str | None = None) -> T:
    """An instance of `schema`, such as Experiment, from overrides in Hydra's grammar.

    Args:
        schema: the dataclass that holds the parts (`env`, `algorithm`, `model`, ...) and the other options.
        overrides: `env=pettingzoo/multiwalker`, `algorithm=mappo`, `algorithm.lr=3e-4`, `model.hidden=[64,64]`,
            `algorithms.adversary=ippo`, `models.speaker=gru`, `experiment=<a file of the folder>`, `frames=1_000_000`;
            `tuned=false`: options without an override have their own defaults, not tuned or derived ones.
        config_dir: a folder of YAML variants; default: the folder in MARLNB_CONFIG_DIR, or `./conf`.
    Raises:
        ConfigError: an unknown or misspelt key or name, with the nearest valid ones; a value out of range; a sweep.
    """
    with _errors_name_files(overrides, config_dir):
        return from_json(_compose_json(overrides, defaults_json(schema), config_dir), schema)


def compose_env(name: str, *overrides: str, config_dir: str | None = None) -> EnvConfig:
    """One environment's options: the name of an environment or a variant, and overrides such as `env.max_cycles=50`.

    Raises:
        ConfigError: as `compose`.
    """
    overrides = (f"env={name}", *overrides)
    with _errors_name_files(overrides, config_dir):
        options = _compose_json(overrides, {}, config_dir)["env"]
        return from_json(options, ENVIRONMENTS.get(options["name"]), "env")


def chosen_parts(overrides: Sequence[str], config_dir: str | None = None) -> dict[str, type[Any]]:
    """The class behind each part that overrides name, by the part's path; for a variant, the class of its base.

    Raises:
        ConfigError: an override that cannot be read, or an unknown name.
    """
    variants = Variants.find(config_dir)
    classes = {}
    for part, name in named_parts(overrides, variants):
        if name is not None:
            registered, node = _chain(group_of(part), name, variants)[-1]
            classes[part] = REGISTRIES[group_of(part)].get(str(node.get("name", registered)))
    return classes


def _compose_json(overrides: Sequence[str], defaults: Mapping[str, Any], config_dir: str | None) -> dict[str, Any]:
    """The composed options as plain JSON: names are chosen and values merged, but nothing is checked yet."""
    variants = Variants.find(config_dir)
    request = read_overrides(overrides, variants)
    words = shown(" ".join(overrides), 400)
    settings = list(_settings(request, variants))
    _check_mappings(settings, {*_mappings(defaults, ()), *_mappings_of_parts(request, variants)})
    with _lock, _private_hydra(_nodes(request, variants, defaults)):
        try:
            composed = _composed(request.values, words)
            options = _resolved(composed)
            _check_tables(options)
            if "tuned" in defaults and request.tuned:
                options = _started(composed, options, _given(request, settings))
            assert isinstance(options, dict)
            given = {str(key): value for key, value in options.items() if value is not None or key not in GROUP_OF}
            return _inherit(given)
        except (HydraException, OmegaConfBaseException) as error:
            at = str(getattr(error, "full_key", None) or "")
            known = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error  # it says more
            reason = str(known).partition("\n    full_key:")[0][:400]  # the rest is for those who program OmegaConf
            reason = reason.replace("DictConfig", "a mapping").replace("ListConfig", "a list")
            raise ConfigError(f"cannot compose {words}: {reason}", at=at) from error


def _composed(values: Sequence[str], words: str) -> Any:
    """What Hydra composes."""
    try:
        # not `initialize`, which looks for the caller in all modules: 40 ms where thousands are loaded
        with initialize_config_module("marlnb.composition", job_name="marlnb", version_base="1.3"):
            return hydra_compose(_PRIMARY, overrides=list(values))
    except OmegaConfBaseException:
        raise
    except (TypeError, ValueError) as error:  # OmegaConf looks for a name in a list
        raise ConfigError(
            f"cannot compose {words}: an element of a list is set by its number, such as model.hidden.0=64; {error}"
        ) from error


def _check_tables(options: Any) -> None:
    """Raises ConfigError unless the parts by group are mappings of mappings."""
    for parts, kind in GROUP_OF_EACH.items():
        table = {} if options.get(parts) is None else options[parts]
        if not isinstance(table, Mapping):
            raise _no_mapping((parts,), table)
        for group, part in table.items():
            if not isinstance(part, Mapping):
                at = f"{parts}.{group}"
                raise ConfigError(f"{at} takes the name or the options of one {kind}; got {shown(part)}", at=at)
            if not isinstance(part.get("name", ""), str):
                at = f"{parts}.{group}.name"
                raise ConfigError(f"{at} takes the name of a registered {kind}; got {shown(part['name'])}", at=at)


def _started(composed: Any, options: Any, given: set[Path]) -> Any:
    """The options with tuned or derived values where nothing set them; interpolations take these values as well."""
    start = starting_values(options, given)
    OmegaConf.set_struct(composed, False)
    for path, value in start.values.items():
        set_value(composed, path, value)
    return {**_resolved(composed), "tuned": to_json(tuple(start.tuned))}


def _resolved(composed: Any) -> Any:
    """The options, with values in the places of interpolations."""
    options = OmegaConf.to_container(composed, resolve=False)
    if not has_interpolations(options):
        return options
    check_interpolations(options)  # type: ignore[arg-type]
    return OmegaConf.to_container(composed, resolve=True)


def _check_mappings(settings: Sequence[tuple[Path, Any]], mappings: set[Path]) -> None:
    """Raises ConfigError if an option that takes a mapping, or in which others are set, has another value.

    Hydra replaces such a value without a word by the options in it: `algorithms=0 algorithms.agent.lr=1e-3`.
    """
    holders = {path[:n] for path, _ in settings for n in range(1, len(path))}
    for path, value in settings:
        is_resolved_later = isinstance(value, str) and "${" in value
        if path in mappings and not isinstance(value, Mapping) and not is_resolved_later:
            raise _no_mapping(path, value)
        if path in holders and not isinstance(value, Mapping | list):
            raise _no_mapping(path, value)


def _no_mapping(path: Path, value: Any) -> ConfigError:
    name, kind = ".".join(path), GROUP_OF_EACH.get(path[0])
    takes = f"takes {kind}s by group, such as {name}.agent=<name>" if kind and len(path) == 1 else "must be a mapping"
    return ConfigError(f"{name} {takes}; got {shown(value)}", at=name)


def _mappings_of_parts(request: OverrideRequest, variants: Variants) -> Iterator[Path]:
    """The paths of the options of chosen parts that are mappings by default."""
    for part, name in request.choices.items():
        if name is not None:
            yield from _mappings(_chain(group_of(part), name, variants)[-1][1], tuple(part.split(".", 1)))


def _mappings(options: Mapping[str, Any], at: Path) -> Iterator[Path]:
    return ((*at, key) for key, value in options.items() if isinstance(value, Mapping))


def _given(request: OverrideRequest, settings: Sequence[tuple[Path, Any]]) -> set[Path]:
    """The paths of the options that overrides, an experiment's file or variants set."""
    given = {path for path, _ in settings}
    given.update((part, "name") for part in request.chosen)
    given.update(tuple(part.split(".", 1)) for part, name in request.choices.items() if name is None)
    return given


def _settings(request: OverrideRequest, variants: Variants) -> Iterator[tuple[Path, Any]]:
    """(path, value) of each option that overrides, an experiment's file or variants set."""
    yield from request.settings
    yield from _leaves(request.options, ())
    for part, name in request.choices.items():
        files = variants.names(group_of(part))
        for member, content in _chain(group_of(part), name, variants) if name is not None else ():
            if member in files:
                options = {key: value for key, value in content.items() if key not in ("defaults", "name")}
                yield from _leaves(options, tuple(part.split(".", 1)))


def _leaves(options: Mapping[str, Any], at: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*at, str(key)))
        else:
            yield (*at, str(key)), value


@contextmanager
def _errors_name_files(overrides: Sequence[str], config_dir: str | None) -> Iterator[None]:
    """If a file set the option that an error is about, the error starts with that file and line."""
    try:
        yield
    except ConfigError as error:
        position = _file_position(error.at, overrides, Variants.find(config_dir)) if error.at else None
        if position is None:
            raise
        raise type(error)(f"{position}: {error}", at=error.at) from error


def _file_position(option: str, overrides: Sequence[str], variants: Variants) -> str | None:
    """The file and line that set an option: an experiment's file, or the most derived variant that sets it.

    None if an override sets it, or if no file does.
    """
    request = read_overrides(overrides, variants)
    overridden = [word.lstrip("+").partition("=")[0] for word in request.values]
    if any(f"{option}.".startswith(f"{key}.") for key in overridden):
        return None
    candidates = [("experiment", request.experiment, option)] if request.experiment else []
    for part, name in request.choices.items():
        if name is not None and option.startswith(f"{part}."):
            key = option.removeprefix(f"{part}.")
            candidates += [(group_of(part), member, key) for member, _ in _chain(group_of(part), name, variants)]
    for group, name, key in candidates:
        if (line := variants.line(group, name, key)) is not None:
            return f"{variants.where(group, name)}, line {line}"
    return None


def _nodes(request: OverrideRequest, variants: Variants, defaults: Mapping[str, Any]) -> Iterator[_Node]:
    """(group, name, node, package) of everything this composition needs; groups and names contain no slash.

    Hydra reads `/` in a name as a folder. It would place the files of a folder under another key than `env`, and could
    not find them from within another folder. So a name travels as `pettingzoo:multiwalker`, and its base as an absolute
    `@_here_`.
    """
    parts = {part: name for part, name in request.choices.items() if name is not None}
    nodes = {
        (group_of(part), member): node
        for part, name in parts.items()
        for member, node in _chain(group_of(part), name, variants)
    }
    for (group, member), node in nodes.items():
        yield group, _without_slash(member), node, None
    chosen = [{f"{group_of(part)}@{part}": _without_slash(name)} for part, name in parts.items()]
    scalars = {key: value for key, value in defaults.items() if key not in GROUP_OF}
    yield None, _PRIMARY, {"defaults": ["_self_", *chosen, {"options": "file"}], **scalars}, None
    yield "options", "file", request.options, "_global_"


def _chain(group: str, name: str, variants: Variants) -> list[tuple[str, dict[str, Any]]]:
    """(name, node) of a variant, of its base, of that one's base, ..., ending with the registered one."""
    chain: dict[str, dict[str, Any]] = {}
    pending: str | None = name
    while pending is not None:
        if pending in chain:
            raise ConfigError(f"{variants.where(group, name)}: circular bases, {' on '.join([*chain, pending])}")
        if len(chain) > MAX_BASES:
            raise ConfigError(f"{variants.where(group, name)}: it has more than {MAX_BASES} bases, each on the next")
        chain[pending], pending = _node(group, pending, variants)
    return list(chain.items())


def _node(group: str, name: str, variants: Variants) -> tuple[dict[str, Any], str | None]:
    """The node of one name, and the name of its base."""
    registry, variant_names = REGISTRIES[group], variants.names(group)
    if is_import_path(name) or name in registry:
        if name in variant_names:
            raise ConfigError(f"{variants.where(group, name)}: {name!r} is already a registered {registry.kind}")
        return {"name": name, **defaults_json(registry.get(name))}, None
    known = {*registry.names(), *variant_names}
    if name not in variant_names:
        folder = f" (and in {variants.folder}/{group})" if variants.folder else ""
        broken = "".join(f"\n{message}" for message in registry.broken().values())
        raise UnknownNameError(registry.lacking(name) or unknown(registry.kind, name, known) + folder + broken)
    content = variants.read(group, name)
    base = base_of(group, name, content, known, variants.where(group, name))
    content.pop("defaults", None)
    if base is None:
        return content, None
    return {"defaults": [f"/{group}/{_without_slash(base)}@_here_", "_self_"], **content}, base


def _without_slash(name: str) -> str:
    return name.replace("/", ":")


def _inherit(options: dict[str, Any]) -> dict[str, Any]:
    """Completes parts that have options but no name: `critic.hidden=[64]` changes one option of the model's."""
    if isinstance(options.get("critic"), dict) and "name" not in options["critic"]:
        options["critic"] = _merged(options["model"], options["critic"])
    for parts in GROUP_OF_EACH:
        # groups before their agents: an agent inherits from its group
        for name, given in sorted((options.get(parts) or {}).items(), key=lambda item: len(str(item[0]))):
            if isinstance(given, dict) and "name" not in given:
                options[parts][name] = _merged(_inherited(options, parts, name), given)
    return options


def _inherited(options: Mapping[str, Any], parts: str, name: str) -> Any:
    """The options that a group, or an agent `<group>_<index>`, has without options set for it alone."""
    if parts == "algorithms":
        return options["algorithm"]
    stem, _, index = str(name).rpartition("_")
    group, models = stem if index.isdigit() else name, options.get("models") or {}
    candidates = (
        (options[parts] or {}).get(group) if group != name else None,
        options.get("critic") if parts == "critics" else None,
        models.get(name),
        models.get(group),
    )
    return next(
        (candidate for candidate in candidates if candidate and "name" in candidate),
        options["model"],
    )


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = OmegaConf.to_container(OmegaConf.merge(dict(base), dict(changes)))
    assert isinstance(merged, dict)
    return {str(key): value for key, value in merged.items()}


@cache
def _hydra_options() -> ConfigNode:
    return ConfigNode("config.yaml", OmegaConf.structured(HydraConf(defaults=[])), None, "hydra", None)


@contextmanager
def _private_hydra(nodes: Iterator[_Node]) -> Iterator[None]:
    """Hydra with only these nodes; afterwards the state of the process's own Hydra application is restored.

    Hydra's own options are composed without their parts (launcher, sweeper, logging, ...), which take most of the time
    and are for applications.
    """
    Plugins.instance()  # those that store nodes when they are imported find the process's own store
    store, running, base = ConfigStore.instance(), GlobalHydra.instance().hydra, VersionBase.instance().getbase()
    repo = store.repo
    store.repo = {key: value for key, value in repo.items() if key.startswith("_")}
    store.repo["hydra"] = {"config.yaml": _hydra_options()}
    try:
        for group, name, node, package in nodes:
            store.store(group=group, name=name, node=node, package=package)
        GlobalHydra.instance().clear()
        yield
    finally:
        store.repo = repo
        GlobalHydra.instance().hydra = running
        VersionBase.instance().version_base = base

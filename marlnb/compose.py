"""An Experiment from overrides, `env=mpe/simple_spread algorithm.lr=3e-4`: Hydra's grammar and composition.

The registered dataclasses are the schema. They go to Hydra as plain nodes, of which it selects, places and merges
those that were asked for; `marlnb.codec` then checks every key and value, with the messages that all doors share.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from marlnb.codec import defaults_json, from_json
from marlnb.config import EnvConfig, Experiment
from marlnb.errors import ConfigError, UnknownNameError, unknown
from marlnb.imports import is_import_path
from marlnb.override_parsing import GROUP_OF, GROUP_OF_EACH, Request, group_of, named_parts, read_overrides
from marlnb.registry import ALGORITHMS, ENVIRONMENTS, MODELS, Registry
from marlnb.variants import Variants, base_of

REGISTRIES: dict[str, Registry[Any]] = {"env": ENVIRONMENTS, "algorithm": ALGORITHMS, "model": MODELS}
_PRIMARY = "marlnb_experiment"
_Node = tuple[str | None, str, dict[str, Any], str | None]  # group, name, content, package
_lock = threading.RLock()  # Hydra's state is global to the process


def compose(*overrides: str, config_dir: str | None = None) -> Experiment:
    """An Experiment from overrides in Hydra's grammar.

    Args:
        overrides: `env=pettingzoo/multiwalker`, `algorithm=mappo`, `algorithm.lr=3e-4`, `model.hidden=[64,64]`,
            `algorithms.adversary=ippo`, `models.speaker=gru`, `experiment=<a file of the folder>`, `frames=1_000_000`.
        config_dir: a folder of YAML variants; if none is given, that in MARLNB_CONFIG_DIR, or `./conf`.
    Raises:
        ConfigError: an unknown or misspelt key or name, with the nearest valid ones; a value out of range; a sweep.
    """
    with _files_named(overrides, config_dir):
        return from_json(compose_json(*overrides, config_dir=config_dir))


def compose_env(name: str, *overrides: str, config_dir: str | None = None) -> EnvConfig:
    """One environment's options: a name, registered or a variant's, and overrides as `env.max_cycles=50`.

    Raises:
        ConfigError: as `compose`.
    """
    words = (f"env={name}", *overrides)
    with _files_named(words, config_dir):
        options = compose_json(*words, config_dir=config_dir)["env"]
        return from_json(options, ENVIRONMENTS.get(options["name"]), "env")


def compose_json(*overrides: str, config_dir: str | None = None) -> dict[str, Any]:
    """What `compose` reads: the composed options as plain JSON, names chosen and values merged, not yet checked."""
    variants = Variants.find(config_dir)
    request = read_overrides(overrides, variants)
    with _lock, _private_hydra(_nodes(request, variants)):
        try:
            with initialize(config_path=None, job_name="marlnb", version_base="1.3"):
                composed = hydra_compose(_PRIMARY, overrides=request.values)
            plain = OmegaConf.to_container(composed, resolve=True)
        except (HydraException, OmegaConfBaseException) as error:
            at = str(getattr(error, "full_key", None) or "")
            raise ConfigError(f"cannot compose {' '.join(overrides)!r}: {error}", at=at) from error
    assert isinstance(plain, dict)
    return _inherit({str(key): value for key, value in plain.items() if value is not None or key not in GROUP_OF})


@contextmanager
def _files_named(overrides: Sequence[str], config_dir: str | None) -> Iterator[None]:
    """An error about an option that a file sets begins with the file and the line."""
    try:
        yield
    except ConfigError as error:
        place = _place(error.at, overrides, Variants.find(config_dir)) if error.at else None
        if place is None:
            raise
        raise type(error)(f"{place}: {error}", at=error.at) from error


def _place(option: str, overrides: Sequence[str], variants: Variants) -> str | None:
    """Which line of which file sets an option: an experiment's file, or a variant's, of those that others are built on
    the last. None where an override sets it, or no file does."""
    request = read_overrides(overrides, variants)
    overridden = [word.lstrip("+").partition("=")[0] for word in request.values]
    if any(f"{option}.".startswith(f"{key}.") for key in overridden):
        return None
    asked = [("experiment", request.experiment, option)] if request.experiment else []
    for part, name in request.choices.items():
        if name is not None and option.startswith(f"{part}."):
            below = option.removeprefix(f"{part}.")
            asked += [(group_of(part), member, below) for member, _ in _chain(group_of(part), name, variants)]
    for group, name, key in asked:
        if (line := variants.line(group, name, key)) is not None:
            return f"{variants.where(group, name)}, line {line}"
    return None


def _nodes(request: Request, variants: Variants) -> Iterator[_Node]:
    """(group, name, node, package) of all that this composition needs; groups and names have no slash in them.

    Hydra reads `/` in a name as a folder, whose files it places under another key than `env` and cannot find from
    within another folder. So a name travels as `pettingzoo:multiwalker`, and its base as an absolute `@_here_`.
    """
    parts = {part: name for part, name in request.choices.items() if name is not None}
    entered: set[tuple[str, str]] = set()
    for part, name in parts.items():
        for member, node in _chain(group_of(part), name, variants):
            if (group_of(part), member) not in entered:
                entered.add((group_of(part), member))
                yield group_of(part), _flat(member), node, None
    chosen = [{f"{group_of(part)}@{part}": _flat(name)} for part, name in parts.items()]
    scalars = {key: value for key, value in defaults_json(Experiment).items() if key not in GROUP_OF}
    yield None, _PRIMARY, {"defaults": ["_self_", *chosen, {"options": "file"}], **scalars}, None
    yield "options", "file", request.options, "_global_"


def _chain(group: str, name: str, variants: Variants) -> list[tuple[str, dict[str, Any]]]:
    """A name with its node, and all that it is built on, down to the registered one."""
    chain: dict[str, dict[str, Any]] = {}
    pending: str | None = name
    while pending is not None:
        if pending in chain:
            raise ConfigError(f"{variants.where(group, name)}: built in a circle, {' on '.join([*chain, pending])}")
        chain[pending], pending = _node(group, pending, variants)
    return list(chain.items())


def _node(group: str, name: str, variants: Variants) -> tuple[dict[str, Any], str | None]:
    """The node of one name, and the name that it is built on."""
    registry, own = REGISTRIES[group], variants.names(group)
    if is_import_path(name) or name in registry.names():
        if name in own:
            raise ConfigError(f"{variants.where(group, name)}: {name!r} is a registered {registry.kind} already")
        return {"name": name, **defaults_json(registry.get(name))}, None
    if name not in own:
        place = f" (and in {variants.folder}/{group})" if variants.folder else ""
        broken = "".join(f"\n{message}" for message in registry.broken().values())
        unknown_name = unknown(registry.kind, name, [*registry.names(), *own]) + place + broken
        raise UnknownNameError(registry.lacking(name) or unknown_name)
    content = variants.read(group, name)
    known = {*registry.names(), *own}
    base = base_of(group, name, content, known, variants.where(group, name))
    content.pop("defaults", None)
    if base is None:
        return content, None
    return {"defaults": [f"/{group}/{_flat(base)}@_here_", "_self_"], **content}, base


def _flat(name: str) -> str:
    return name.replace("/", ":")


def chosen_parts(overrides: Sequence[str], config_dir: str | None = None) -> dict[str, type[Any]]:
    """The class behind each part that overrides name, by the part's path; a variant's is that of its base.

    Raises:
        ConfigError: an override that cannot be read, or an unknown name.
    """
    variants = Variants.find(config_dir)
    named = {part: value for part, value in named_parts(overrides, variants) if value is not None}
    return {
        part: REGISTRIES[group_of(part)].get(_registered(group_of(part), name, variants))
        for part, name in named.items()
    }


def _registered(group: str, name: str, variants: Variants) -> str:
    """The registered name at the bottom of a variant."""
    bottom, node = _chain(group, name, variants)[-1]
    return str(node.get("name", bottom))


def _inherit(options: dict[str, Any]) -> dict[str, Any]:
    """Completes the parts of which only options were given: `critic.hidden` changes the model's, and so on."""
    if isinstance(options.get("critic"), dict) and "name" not in options["critic"]:
        options["critic"] = _merged(options["model"], options["critic"])
    for several in GROUP_OF_EACH:
        for name, given in sorted(options.get(several, {}).items(), key=lambda item: len(item[0])):
            if isinstance(given, dict) and "name" not in given:
                options[several][name] = _merged(_base(options, several, name), given)
    return options


def _base(options: Mapping[str, Any], several: str, name: str) -> Any:
    """What the options for a group, or for an agent `<group>_<index>`, add to: what it would have had without them."""
    if several == "algorithms":
        return options["algorithm"]
    stem, _, index = name.rpartition("_")
    group, models = stem if index.isdigit() else name, options.get("models", {})
    own = None if group == name else options[several].get(group)
    candidates = (own, several == "critics" and options.get("critic"), models.get(name), models.get(group))
    return next((found for found in candidates if found and "name" in found), options["model"])


def _merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = OmegaConf.to_container(OmegaConf.merge(dict(base), dict(given)))
    assert isinstance(merged, dict)
    return {str(key): value for key, value in merged.items()}


@contextmanager
def _private_hydra(nodes: Iterator[_Node]) -> Iterator[None]:
    """Hydra with these nodes only; what the process's own Hydra application had is back afterwards."""
    store, running, base = ConfigStore.instance(), GlobalHydra.instance().hydra, VersionBase.instance().getbase()
    repo = store.repo
    store.repo = {key: value for key, value in repo.items() if key.startswith(("hydra", "_"))}
    try:
        for group, name, node, package in nodes:
            store.store(group=group, name=name, node=node, package=package)
        GlobalHydra.instance().clear()
        yield
    finally:
        store.repo = repo
        GlobalHydra.instance().hydra = running
        VersionBase.instance().version_base = base

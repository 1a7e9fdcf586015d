"""A user's folder of YAML files: variants of environments, algorithms, models and leagues, and whole experiments.

    <folder>/env/multiwalker/shared.yaml     env=multiwalker/shared
    <folder>/algorithm/careful.yaml          algorithm=careful, algorithms.adversary=careful
    <folder>/model/wide.yaml                 model=wide, critic=wide
    <folder>/league/small.yaml               league=small
    <folder>/experiment/thesis/first.yaml    experiment=thesis/first

A variant names its base in `defaults`, or a registered class in `name`, followed by its options.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.errors import ConfigError, UnknownNameError, shown, unknown
from marlnb.paths import expanded
from marlnb.plugins.import_paths import is_import_path
from marlnb.text_files import error_words, yaml_text

FOLDER_VARIABLE = "MARLNB_CONFIG_DIR"
DEFAULT_FOLDER = "conf"
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Variants:
    """The YAML files of one folder, read when they are needed.

    Attributes:
        folder: None if there is no folder.
    """

    folder: Path | None
    _paths: dict[str, dict[str, Path]] = field(default_factory=dict, compare=False, repr=False)  # by group

    @staticmethod
    def find(folder: str | os.PathLike[str] | None = None) -> Variants:
        """The given folder, or the one in MARLNB_CONFIG_DIR, or `./conf` if it exists.

        Raises:
            ConfigError: the requested folder does not exist.
        """
        requested = folder or os.environ.get(FOLDER_VARIABLE)
        if not requested:
            default = Path(DEFAULT_FOLDER)
            return Variants(default if default.is_dir() else None)
        path = expanded(requested)
        try:
            is_folder = path.is_dir()
        except OSError:  # its name is too long
            is_folder = False
        if not is_folder:
            source = "" if folder else f" (from {FOLDER_VARIABLE})"
            raise ConfigError(f"no folder of configurations at {shown(str(path))}{source}")
        return Variants(path)

    def names(self, group: str) -> list[str]:
        """Names of the variants of `env`, `algorithm`, `model` or `league`, or of the experiments."""
        return sorted(self._files(group))

    def read(self, group: str, name: str) -> dict[str, Any]:
        """The content of one file.

        Raises:
            ConfigError: it does not exist, or is not a YAML mapping.
        """
        files = self._files(group)
        if name not in files:
            raise UnknownNameError(unknown(group, name, files))
        return read_yaml(files[name])

    def where(self, group: str, name: str) -> str:
        return str(self._files(group).get(name, name))

    def line(self, group: str, name: str, option: str) -> int | None:
        """The line at which a file sets an option, as "kwargs.n_walkers"; None if it does not, or does not exist."""
        file = self._files(group).get(name)
        return _line_of(file.read_text(encoding="utf-8"), option.split(".")) if file else None

    def _files(self, group: str) -> dict[str, Path]:
        """The files of a group by name, listed once."""
        if self.folder is not None and group not in self._paths:
            root = self.folder / group
            files = (path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
            self._paths[group] = {path.relative_to(root).with_suffix("").as_posix(): path for path in files}
        return self._paths.get(group, {})


def base_of(group: str, name: str, content: Mapping[str, Any], known: set[str], where: str) -> str | None:
    """The base of the variant `name`; None if its `name` key names a registered class directly.

    An entry of `defaults` is an import path, "module:Class", or a name that is searched in the file's folder first and
    then in the whole group. Hydra's absolute forms, `/env/pettingzoo/multiwalker` and `/env: pettingzoo/multiwalker`,
    mean the same.

    Raises:
        ConfigError: an unknown name, more than one base, or neither `defaults` nor `name`.
    """
    entries = _defaults(content, where)
    if not isinstance(content.get("name", ""), str):
        raise ConfigError(f"{where}: name takes the name of a registered class; got {shown(content['name'])}")
    if not entries and "name" in content:
        return None
    if len(entries) != 1:
        raise ConfigError(
            f"{where}: a variant needs exactly one base, such as `defaults: [pettingzoo/multiwalker]`, "
            f"or the `name` of a registered class; got defaults {entries}"
        )
    base = _entry_name(group, entries[0], where)
    if is_import_path(base):
        return base
    folder = name.rpartition("/")[0]
    for candidate in (f"{folder}/{base}" if folder else base, base):
        if candidate in known and candidate != name:
            return candidate
    if base == name:
        raise ConfigError(f"{where}: {name!r} is its own base; defaults must name another one")
    raise UnknownNameError(f"{where}: {unknown(group, base, known)}")


def _defaults(content: Mapping[str, Any], where: str) -> list[Any]:
    """The entries of `defaults` without Hydra's `_self_`."""
    entries = content.get("defaults", [])
    if not isinstance(entries, list):
        raise ConfigError(f"{where}: defaults must be a list, such as `defaults: [mpe/simple_spread]`; got {entries!r}")
    return [entry for entry in entries if entry != "_self_"]


def _entry_name(group: str, entry: Any, where: str) -> str:
    if isinstance(entry, Mapping) and len(entry) == 1:
        key, value = next(iter(entry.items()))
        entry = f"{key}/{value}"
    if not isinstance(entry, str):
        raise ConfigError(f"{where}: an entry of defaults is a name; got {entry!r}")
    return entry.partition("@")[0].removeprefix("/").removeprefix(f"{group}/")


def experiment_choices(
    content: Mapping[str, Any], where: str, is_part: Callable[[str], bool], parts: Collection[str]
) -> dict[str, str]:
    """Part -> name in an experiment's `defaults`: `override /env: mpe/simple_spread`, `env: mpe/...`.

    Args:
        is_part: whether a key is a part with a name.
        parts: how such keys look, for the message.
    Raises:
        ConfigError: an entry that does not choose a part.
    """
    choices = {}
    for entry in _defaults(content, where):
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise ConfigError(f"{where}: an entry of an experiment's defaults is `env: name`; got {entry!r}")
        key, value = next(iter(entry.items()))
        part = str(key).removeprefix("override ").strip().removeprefix("/")
        if not is_part(part):
            raise ConfigError(f"{where}: {unknown('part', part, parts)}")
        choices[part] = str(value)
    return choices


def _line_of(text: str, keys: list[str]) -> int | None:
    import yaml

    node, line = yaml.compose(text), None
    for key in keys:
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        match = next((entry for entry in entries if entry[0].value == key), None)
        if match is None:
            return None
        line, node = match[0].start_mark.line + 1, match[1]
    return line


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Numbers may be written as `2e-3`; dates are texts.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    from omegaconf import DictConfig, OmegaConf

    try:
        loaded = OmegaConf.load(io.StringIO(yaml_text(path)))
    except ConfigError:
        raise
    except Exception as error:  # a YAML error, or whatever a date or a nesting makes Python raise
        raise ConfigError(f"cannot read {path}: {error_words(error)}") from error
    content = OmegaConf.to_container(loaded, resolve=False) if isinstance(loaded, DictConfig) else None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a mapping of options")
    return {str(key): value for key, value in content.items()}

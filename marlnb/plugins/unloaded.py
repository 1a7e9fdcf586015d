"""Unloaded: a part of an experiment that was read from a file without importing the code that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from marlnb.plugins.import_paths import is_import_path
from marlnb.plugins.registry import Registry


@dataclass(frozen=True)
class NamedCode:
    """What one option of a part makes a machine do.

    Attributes:
        option: its name; "name" for the part's class.
        value: what it names, such as "my_env:make".
        effect: what happens to that, such as "imports and calls".
    """

    option: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Unloaded:
    """Stands for an environment, algorithm or model that names code, which has not been imported.

    Its options are attributes, as those of the class that it stands for; `marlnb.trust.loaded` makes that one.

    Attributes:
        name: the registered name or the import path of its class.
        options: plain JSON, unchecked.
        origin: the folder or file that names the code.
        code: what it names.
    """

    name: str
    options: Mapping[str, Any]
    origin: str
    code: tuple[NamedCode, ...]

    def __post_init__(self) -> None:
        """Nothing is checked: the options belong to a class that is not known yet."""

    def __getattr__(self, option: str) -> Any:
        options = self.__dict__.get("options", {})
        if option.startswith("__") or option not in options:
            raise AttributeError(f"{self.__dict__.get('name')} was read with the options {', '.join(options)} only")
        return options[option]

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({self.name}{options})"


def code_named(registry: Registry[Any], name: str, options: Mapping[str, Any]) -> Iterator[NamedCode]:
    """The code that a part of this name with these options names; nothing of it is imported."""
    if is_import_path(name):
        yield NamedCode("name", name, "imports")
    elif name in registry:
        for item in fields(registry.get(name)):
            effect = item.metadata.get("effect")
            if effect and options.get(item.name):
                yield NamedCode(item.name, str(options[item.name]), effect)

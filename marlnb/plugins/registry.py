"""Registries of classes by name. Registration is one decorator; third parties register through entry points.

A registry knows its built-in members from the text of their modules. It imports the module of one member when that
is first used, and all of them only where all names are needed, so `import marlnb`, composing an experiment and worker
processes stay fast.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from inspect import formatannotation, get_annotations, isabstract, ismemberdescriptor
from pathlib import Path
from typing import Generic, TypeVar

from marlnb.errors import ConfigError, UnknownNameError, shown, unknown
from marlnb.plugins.import_paths import hidden_by, hidden_message, is_import_path, load_object

T = TypeVar("T")
S = TypeVar("S")

ask_before_import: ContextVar[Callable[[str], object] | None] = ContextVar("ask_before_import", default=None)
"""Called with the import path of a class before it is imported; raises where that is not allowed (`marlnb.trust`)."""


class Registry(Generic[T]):
    """A table of named classes of one kind.

    Third parties name a module in the entry-point group `marlnb.<kind>s`; importing it registers their members. A
    module that cannot be imported does not affect the others: `broken` and the error for an unknown name give the
    reason.

    Args:
        kind: the word for a member in messages, such as "algorithm".
        package: the package whose modules register the built-in members when imported. They are found by their text:
            `ALGORITHMS.register` or `@algorithm` at the beginning of a line, named after the kind.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._members: dict[str, T] = {}
        self._broken: dict[str, str] = {}
        self._needs: dict[str, str] = {}
        self._libraries: dict[str, tuple[str, ...]] = {}
        self._built_in: dict[str, list[str]] | None = None
        self._loaded = False
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        names = self.names()
        return f"<{len(names)} {self.kind}s: {', '.join(names)}>"

    def register(self, name: str) -> Callable[[S], S]:
        """A class decorator that registers the class as `name` and sets its class attribute `name`.

        It replaces an earlier definition of the same class. In a notebook or a script it may have had another name, or
        come from a module since: a cell that was moved there, or a script that is imported as well.

        Raises:
            ConfigError: the name has another class, or the class changes an option's default without its type.
        """

        def enter(member: S) -> S:
            _check_defaults(member)
            present = self._members.get(name)
            if present is not None and not _is_redefined(present, member):
                raise ConfigError(f"{self.kind} {name!r} is registered already, by {_path(present)}")
            member.name = name  # type: ignore[attr-defined]
            self._members[name] = member  # type: ignore[assignment]
            return member

        return enter

    def needs(self, prefix: str, what: str) -> None:
        """States that names with this prefix need `what`; an error says so if there are none."""
        self._needs[prefix] = what

    def provided_by(self, prefix: str, *modules: str) -> None:
        """States that names with this prefix come from these modules; an error says so if a user's file hides one."""
        self._libraries[prefix] = modules

    def lacking(self, name: str) -> str | None:
        """A message about the hidden or missing library that an unknown name needs; None if none is known."""
        for prefix, modules in self._libraries.items():
            for module in modules if name.startswith(prefix) else ():
                if (file := hidden_by(module)) is not None:
                    return f"{self.kind} {name!r}: {hidden_message(module, file)}"
        for prefix, what in self._needs.items():
            if name.startswith(prefix) and not any(member.startswith(prefix) for member in self._members):
                return f"{self.kind} {name!r} needs {what}"
        return None

    def names(self) -> list[str]:
        self._load()
        return sorted(self._members)

    def __contains__(self, name: object) -> bool:
        """Whether a class is registered as `name`; for a built-in one, without importing it."""
        return name in self._members or name in self._modules() or name in self.names()

    def get(self, name: str) -> T:
        """The class registered as `name`, or the one at the import path "module:Class".

        Raises:
            UnknownNameError: not registered; the message gives similar names, and plug-ins that could not be loaded.
            ConfigError: the import path does not lead to a class of this kind, a class is not a dataclass, or it
                changes an option's default without its type.
            TrustError: that code may not be imported here.
        """
        if name not in self._members and name in (modules := self._modules()):
            importlib.import_module(modules[name])
        if name not in self._members and not is_import_path(name):
            self._load()
        if name not in self._members and is_import_path(name):
            self._members[name] = _with_known_options(self._imported(name))
        if name not in self._members:
            broken = "".join(f"\n{message}" for message in self._broken.values())
            raise UnknownNameError(self.lacking(name) or unknown(self.kind, name, self._members) + broken)
        return _with_known_options(self._members[name])

    def items(self) -> list[tuple[str, T]]:
        """All members, those included whose use would be an error."""
        return [(name, self._members[name]) for name in self.names()]

    def broken(self) -> dict[str, str]:
        """A message for each entry point that could not be loaded, by the entry point's name."""
        self._load()
        return dict(self._broken)

    def _imported(self, path: str) -> T:
        """An unregistered class of this kind; its name becomes the path, so that other processes find it as well.

        A registered class is known by the path from then on.
        """
        if (ask := ask_before_import.get()) is not None:
            ask(path)
        member = load_object(path)
        if not isinstance(member, type) or getattr(member, "registry", None) is not self or isabstract(member):
            hint = ""
            if self.kind == "environment" and callable(member):
                call = f"env=pettingzoo/custom env.entry_point={path}"
                hint = f"; a function that returns a PettingZoo environment: {call}"
            raise ConfigError(
                f"{path} is not a valid {self.kind}: expected a dataclass derived from marlnb.EnvConfig, "
                f"AlgorithmConfig, ModelConfig, LeagueConfig or EvolutionConfig, as the part requires; got {member!r}"
                f"{hint}"
            )
        _check_defaults(member)
        member.name = path  # type: ignore[attr-defined]
        return member  # type: ignore[return-value]

    @property
    def entry_point_group(self) -> str:
        return f"marlnb.{self.kind}s"

    def _load(self) -> None:
        with self._lock:
            if self._loaded:
                return
            self._loaded = True  # before the imports, which may use this registry
            try:
                for module in self._registering():
                    importlib.import_module(module)
            except BaseException:
                self._loaded = False
                raise
            self._load_plugins()

    def _registering(self) -> dict[str, list[str]]:
        """The modules of the package that register members, each with the names that their text states."""
        with self._lock:
            if self._built_in is None:
                decorator = rf'(?:\b{self.kind.upper()}S\.register|^@{self.kind})\((?:"([^"]+)"\))?'
                pattern = re.compile(decorator, re.MULTILINE)
                root = Path(importlib.import_module(self.package).__path__[0])
                self._built_in = {}
                for path in sorted(root.rglob("*.py")):
                    module = ".".join((self.package, *path.relative_to(root).with_suffix("").parts))
                    if names := pattern.findall(path.read_text(encoding="utf-8")):
                        self._built_in[module.removesuffix(".__init__")] = names
            return self._built_in

    def _modules(self) -> dict[str, str]:
        """The module of each member whose name is in the module's text."""
        return {name: module for module, names in self._registering().items() for name in names if name}

    def _load_plugins(self) -> None:
        from importlib.metadata import entry_points

        for point in entry_points(group=self.entry_point_group):
            try:
                point.load()
            except Exception as error:  # a third-party module may raise anything
                owner = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
                self._broken[point.name] = (
                    f"the plug-in {point.name!r}{owner} ({self.entry_point_group} = {point.value}) "
                    f"could not be loaded: {type(error).__name__}: {error}"
                )


def _with_known_options(member: T) -> T:
    """The class. Raises ConfigError if it states options and is derived from a dataclass, but is none itself."""
    is_derived = isinstance(member, type) and is_dataclass(member) and "__dataclass_fields__" not in vars(member)
    if is_derived and get_annotations(member):  # type: ignore[arg-type]
        raise ConfigError(f"{_path(member)} needs the decorator @dataclass(frozen=True), so that its options are known")
    return member


def _check_defaults(member: object) -> None:
    """Raises ConfigError if a class attribute without a type has the name of an option: dataclasses ignore it."""
    if not isinstance(member, type) or not is_dataclass(member):
        return
    for item in fields(member):
        owner = next((kind for kind in member.__mro__ if item.name in vars(kind)), None)
        if owner is None or ismemberdescriptor(value := vars(owner)[item.name]):  # no default, or slots=True
            continue
        states_options = owner is member or "__dataclass_fields__" in vars(owner)
        if not (states_options and item.name in get_annotations(owner)):
            kind = item.type if isinstance(item.type, str) else formatannotation(item.type)
            raise ConfigError(
                f"{_path(owner)}.{item.name} = {shown(value)} does not change the option {item.name!r}; "
                f"write `{item.name}: {kind} = {shown(value)}` in a dataclass"
            )


def _is_redefined(present: object, member: object) -> bool:
    """Whether `member` is a new definition of the class `present`."""
    modules = {str(getattr(each, "__module__", "")) for each in (present, member)}
    if "__main__" not in modules:
        return _path(present) == _path(member)
    is_built_in = any(module.startswith("marlnb.") for module in modules)
    have_one_name = getattr(present, "__qualname__", None) == getattr(member, "__qualname__", None)
    return modules == {"__main__"} or (have_one_name and not is_built_in)


def _path(member: object) -> str:
    return f"{getattr(member, '__module__', '?')}.{getattr(member, '__qualname__', member)}"

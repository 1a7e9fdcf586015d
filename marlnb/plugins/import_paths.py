"""Objects at import paths, "module:attribute": a user's classes and functions that are not registered."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from marlnb.errors import ConfigError, unknown
from marlnb.plugins import user_code

NOT_HERE = (
    "it is searched on sys.path alone: what other people's run folders name is not searched in the current folder; "
    "PYTHONPATH=. adds it"
)
_PATH = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_import_path(name: str) -> bool:
    """Whether a name is "module:attribute" rather than a registered one."""
    return _PATH.fullmatch(name) is not None


def hidden_by(module: str) -> str | None:
    """The file that hides the installed package `module`: it has the same name and comes first on `sys.path`."""
    spec = importlib.machinery.PathFinder.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    folder = os.path.dirname(os.path.abspath(spec.origin))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != folder]
    hidden = importlib.machinery.PathFinder.find_spec(module, others)
    return spec.origin if hidden is not None and hidden.submodule_search_locations is not None else None


def hidden_message(module: str, file: str) -> str:
    return f"the file {file} has the name of the installed library {module!r} and hides it; rename the file"


def file_of(module: str) -> str | None:
    """The file that importing a module would execute, found without importing anything; None if there is none."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    spec, locations, parts = None, None, module.split(".")
    for length in range(1, len(parts) + 1):
        spec = _find_spec(".".join(parts[:length]), locations)
        if spec is None:
            return None
        locations = spec.submodule_search_locations
    return spec.origin if spec is not None else None


def _find_spec(name: str, locations: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, locations, None)
        except KeyError:  # a folder without __init__.py, below another such folder that is not imported
            spec = importlib.machinery.PathFinder.find_spec(name.rpartition(".")[2], locations)
        if spec is not None:
            return spec
    return None


def load_object(path: str, *, search_here: bool = True) -> Any:
    """The object at "module:attribute".

    Args:
        path: of a module of the user's or of a library; Python's own modules are refused, since none of them has
            anything that marlnb could use, and some, as os, run commands.
        search_here: search the module on `sys.path` and then in the current folder, which is appended to `sys.path` so
            that worker processes find the module as well; otherwise on `sys.path` alone.
    Raises:
        ConfigError: not a path of that form, a module that cannot be imported, or a name that it does not have.
    """
    if not is_import_path(path):
        raise ConfigError(f'an import path has the form "module:name"; got {path!r}')
    module, _, attribute = path.partition(":")
    folder = os.getcwd()
    top, _, below = module.partition(".")
    if top in sys.stdlib_module_names:
        raise ConfigError(f"cannot use {path!r}: {top!r} is a module of Python itself; expected a module of yours")
    if search_here and folder not in sys.path and "" not in sys.path and file_of(top) is None:
        sys.path.append(folder)
    if below and (file := hidden_by(top)) is not None:
        raise ConfigError(f"cannot import {module!r} for {path!r}: {hidden_message(top, file)}")
    try:
        value: Any = importlib.import_module(module)
    except Exception as error:  # a third-party module may raise anything
        if (cause := user_code.describe_error(error)) is not None:
            raise ConfigError(f"cannot import {module!r} for {path!r}: it raised {cause}") from error
        raise ConfigError(
            f"cannot import {module!r} for {path!r}: {type(error).__name__}: {error}; "
            + (f"it is searched on sys.path and in the current folder {folder}" if search_here else NOT_HERE)
        ) from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise ConfigError(unknown(f"name in {module}", attribute, (n for n in vars(value) if n[0] != "_")))
        value = getattr(value, part)
    return value

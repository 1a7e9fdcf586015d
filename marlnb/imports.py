"""What stands at an import path, "module:attribute": a user's own class or function that nothing has registered."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import re
import sys
from typing import Any

from marlnb import user_code
from marlnb.errors import ConfigError, unknown

_PATH = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def is_import_path(name: str) -> bool:
    """Whether a name is "module:attribute" rather than a registered one."""
    return _PATH.fullmatch(name) is not None


def hidden_by(module: str) -> str | None:
    """The file of that name which Python finds in place of an installed package further on; None where none does."""
    spec = importlib.machinery.PathFinder.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    folder = os.path.dirname(os.path.abspath(spec.origin))
    others = [place for place in sys.path if os.path.abspath(place or os.curdir) != folder]
    behind = importlib.machinery.PathFinder.find_spec(module, others)
    return spec.origin if behind is not None and behind.submodule_search_locations is not None else None


def hidden_message(module: str, file: str) -> str:
    return f"the file {file} hides the installed library {module!r}, whose name it has; give the file another name"


def load_object(path: str) -> Any:
    """The object at "module:attribute".

    The module is looked for wherever Python looks and, last, in the current folder, which stays on `sys.path` so that
    worker processes find it as well.

    Raises:
        ConfigError: not a path of that form, a module that cannot be imported, or nothing of that name in it.
    """
    if not is_import_path(path):
        raise ConfigError(f'an import path is written "module:name"; got {path!r}')
    module, _, attribute = path.partition(":")
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
    top, _, below = module.partition(".")
    if below and (file := hidden_by(top)) is not None:
        raise ConfigError(f"cannot import {module!r} for {path!r}: {hidden_message(top, file)}")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # a stranger's module may raise anything
        if (whose := user_code.describe_error(error)) is not None:
            raise ConfigError(f"cannot import {module!r} for {path!r}: it raised {whose}") from error
        raise ConfigError(
            f"cannot import {module!r} for {path!r}: {type(error).__name__}: {error}; "
            f"it is looked for where Python looks, and in the current folder {folder}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(unknown(f"name in {module}", attribute, (n for n in vars(found) if n[0] != "_")))
        found = getattr(found, part)
    return found

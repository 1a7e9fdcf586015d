"""Public names that are imported when they are first used.

A package states each public name once, as an import under `if TYPE_CHECKING:`, where type checkers and editors read it:

    if TYPE_CHECKING:
        from marlnb.training.train import train as train

    __getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any

_IMPORT = re.compile(r"^(?:    )?from (\S+) import (\w+) as \2$", re.MULTILINE)


def public_names(file: str | os.PathLike[str]) -> dict[str, str]:
    """The public names of a package, from its `__init__.py`, with the module that defines each."""
    with open(file, encoding="utf-8") as source:
        return {name: module for module, name in _IMPORT.findall(source.read())}


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for a package that imports its public names when they are first used.

    Args:
        package: the package's `__name__`.
        file: the package's `__file__`; its indented lines `from module import name as name` are the table of names.
    """
    module_of = public_names(file)

    def load(name: str) -> Any:
        if name not in module_of:
            from marlnb.errors import nearest

            close = nearest(name, module_of)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        module = module_of[name]
        value = importlib.import_module(f"{package}.{name}" if module == package else module)
        if module != package:
            value = getattr(value, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, names, sorted(module_of)

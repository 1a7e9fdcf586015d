"""Stand-ins for torch, with which the options of all algorithms, environments and networks load quickly.

Options are declared next to the code that they configure, and that code imports torch, tensordict and torchrl, which
takes several seconds. To compose and validate an experiment none of it is called. With the stand-ins, `import torch`
gives an empty module whose every attribute is an empty class. Nothing can be trained in such a process.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGES = ("torch", "tensordict", "torchrl", "gymnasium")


class _StandInType(ABCMeta):
    """The class of stand-ins: its attributes and items are stand-ins as well."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not StandIn:  # a class of marlnb that is derived from one of torch
            return super().__call__(*args, **kwargs)
        is_decorator = len(args) == 1 and callable(args[0]) and not kwargs
        return args[0] if is_decorator else StandIn


class StandIn(metaclass=_StandInType):
    """Whatever a package has: a base class, a function, a decorator or a constant."""


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in PACKAGES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """Replaces the packages in this process. Call it before anything imports them."""
    sys.meta_path.insert(0, _Finder())

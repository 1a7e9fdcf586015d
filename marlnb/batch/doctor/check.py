"""Checks: questions that are answered before a notebook is submitted, and their findings."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from marlnb.batch.doctor.request import DoctorRequest
from marlnb.errors import MarlnbError

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """A result of one check.

    Attributes:
        name: name of the check.
        level: "ok"; "warn" (it may fail, or do something unintended); "fail" (it would fail on the node).
        finding: in words, with the number of the cell (counted from 1 over all cells) if it is about one.
        remedy: what to do; empty if all is well.
    """

    name: str
    level: Level
    finding: str
    remedy: str = ""


Answer = tuple[Level, str, str]
Check = Callable[[DoctorRequest], Iterable[Answer]]
_CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Registers a check: a function that yields tuples of level, finding and remedy."""

    def register(function: Check) -> Check:
        _CHECKS[name] = function
        return function

    return register


def checks() -> Mapping[str, Check]:
    """All checks by name."""
    package = importlib.import_module("marlnb.batch.doctor")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(("__main__", "kernel_probe")):  # these two are programs
            importlib.import_module(module.name)
    return {name: _CHECKS[name] for name in sorted(_CHECKS)}


def examine(request: DoctorRequest) -> Iterator[Finding]:
    """Runs all checks. A check that raises an unexpected error becomes a warning, and the others still run."""
    for name, function in checks().items():
        try:
            for level, finding, remedy in function(request):
                yield Finding(name, level, finding, remedy)
        except (MarlnbError, OSError) as error:
            yield Finding(name, "fail", str(error), "")
        except Exception as error:  # an unusual notebook or cluster must not hide the other findings
            text = f"this check failed: {type(error).__name__}: {error}"
            yield Finding(name, "warn", text, "please report it, with the notebook's cell or the profile")

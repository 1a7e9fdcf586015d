"""Check: one question asked before a notebook is submitted, and what was found."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from marlnb.batch.batch import Batch
from marlnb.batch.offline import job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from marlnb.errors import MarlnbError

if TYPE_CHECKING:
    from marlnb.batch.doctor.cells import Cell
    from marlnb.batch.doctor.kernel import Seen

_LOGIN = ("HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "TMPDIR")  # a node sets them anew

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        name: the check's.
        level: ok; warn (it may fail, or will do something else than is meant); fail (it would fail on the node).
        finding: in plain words, with the cell's number (counted from 1 over all cells) where it is in one.
        remedy: what to do; empty where all is well.
    """

    name: str
    level: Level
    finding: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Subject:
    """What is examined.

    Attributes:
        profile: where it is to run.
        folder: where jobs write; it need not be there yet.
        cwd: from where relative paths in the notebook are meant.
        notebook: None without one.
        sweep: the values of its parameters.
        made: batches and runs that are there already and would be gone on with.
        on_node: this process is on the node itself.
    """

    profile: Profile
    folder: Path
    cwd: Path
    notebook: Path | None = None
    sweep: Sweep = field(default_factory=lambda: Sweep({}, {}))
    made: tuple[Path, ...] = ()
    on_node: bool = False

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of a job's kernel, as far as they are known here."""
        return {**os.environ, **job_environment(self.profile)}

    @cached_property
    def cells(self) -> list[Cell]:
        """The notebook's code cells; none without a notebook, or where it cannot be read."""
        from marlnb.batch.doctor.cells import read_cells

        return [] if self.notebook is None else read_cells(self.notebook)

    @cached_property
    def values(self) -> dict[str, tuple[Any, ...]]:
        """Every value that a parameter takes in some job, by name; not those whose default is no literal."""
        from marlnb.batch.doctor.cells import parameter_values

        return parameter_values(self)

    @cached_property
    def seen(self) -> Seen:
        """What a kernel of this notebook, started by the profile's Python, saw. It is started once."""
        from marlnb.batch.doctor.kernel import start_kernel

        return start_kernel(self)

    @cached_property
    def reaching(self) -> dict[str, str]:
        """Those of the variables that reach a job: sbatch is told to hand over none of the shell's but marlnb's."""
        if self.profile.executor != "slurm" or self.on_node:
            return self.environment
        from marlnb.batch.slurm.script import exports

        login = {name: os.environ[name] for name in _LOGIN if name in os.environ}
        return {**login, **exports(self.profile, os.environ)}

    def on_the_node(self) -> Subject:
        """The same, examined by a process on the node."""
        return replace(self, on_node=True)

    def as_batch(self) -> Batch:
        """The batch that would be submitted; nothing is written."""
        name = self.notebook.name if self.notebook else "notebook.ipynb"
        return Batch(self.folder, name, self.sweep, self.profile, self.cwd)


Answer = tuple[Level, str, str]
Checker = Callable[[Subject], Iterable[Answer]]
_CHECKS: dict[str, Checker] = {}


def check(name: str) -> Callable[[Checker], Checker]:
    """Enters a function, which yields level, finding and remedy, among the checks."""

    def enter(function: Checker) -> Checker:
        _CHECKS[name] = function
        return function

    return enter


def checks() -> Mapping[str, Checker]:
    """Every check by name."""
    package = importlib.import_module("marlnb.batch.doctor")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(("__main__", "inside")):
            importlib.import_module(module.name)
    return {name: _CHECKS[name] for name in sorted(_CHECKS)}


def examine(subject: Subject) -> Iterator[Finding]:
    """Runs every check; one that breaks is told as a warning, and the others go on."""
    for name, function in checks().items():
        try:
            for level, finding, remedy in function(subject):
                yield Finding(name, level, finding, remedy)
        except (MarlnbError, OSError) as error:
            yield Finding(name, "fail", str(error), "")
        except Exception as error:  # strange notebooks and clusters must not hide what else there is to say
            text = f"this could not be checked: {type(error).__name__}: {error}"
            yield Finding(name, "warn", text, "please report it, with the notebook's cell or the profile")

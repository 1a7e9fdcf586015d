"""DoctorRequest: the notebook, profile and folder that the checks examine."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from marlnb.batch.batch import Batch
from marlnb.batch.doctor.cells import Cell, imported_modules, named_environments, parameter_values, read_cells
from marlnb.batch.doctor.kernel_report import KernelReport, start_kernel
from marlnb.batch.offline import job_environment
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep

_LOGIN_VARIABLES = ("HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "TMPDIR")  # a node sets them itself


@dataclass(frozen=True)
class DoctorRequest:
    """What is examined.

    Attributes:
        profile: where the jobs will run.
        folder: where the jobs will write; it need not exist.
        cwd: the folder to which relative paths in the notebook refer.
        notebook: path of the notebook; None without one.
        sweep: values of its parameters.
        existing: batches and runs that will be continued.
        on_node: whether this process runs on the node itself.
    """

    profile: Profile
    folder: Path
    cwd: Path
    notebook: Path | None = None
    sweep: Sweep = field(default_factory=lambda: Sweep({}, {}))
    existing: tuple[Path, ...] = ()
    on_node: bool = False

    @property
    def python(self) -> str:
        """Path of the Python of the profile's jobs; empty if it does not exist."""
        python = self.profile.python
        return sys.executable if python is None else shutil.which(os.path.expanduser(python)) or ""

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables of a job's kernel, as far as they are known here."""
        return {**os.environ, **job_environment(self.profile)}

    @cached_property
    def cells(self) -> list[Cell]:
        """The notebook's code cells; empty without a notebook."""
        return [] if self.notebook is None else read_cells(self.notebook)

    @cached_property
    def values(self) -> dict[str, tuple[Any, ...]]:
        """All values of each parameter by name, except for parameters whose default is not a literal."""
        return {} if self.notebook is None else parameter_values(self.notebook, self.sweep)

    @cached_property
    def modules(self) -> dict[str, int]:
        """Each module that a cell imports, with the first cell's number."""
        return imported_modules(self.cells)

    @cached_property
    def environments(self) -> dict[str, int]:
        """Each environment that a text `env=...` in a cell names, with the first cell's number."""
        return named_environments(self.cells, self.values)

    @cached_property
    def kernel_report(self) -> KernelReport:
        """The report of a kernel of this notebook, started once by the profile's Python."""
        if not self.python:
            return KernelReport("", problem=f"the profile's Python {self.profile.python!r} does not exist")
        names = sorted(self.modules), sorted(self.environments)
        return start_kernel(self.notebook, self.python, *names, self.cwd, self.environment)

    @cached_property
    def job_variables(self) -> dict[str, str]:
        """The variables that reach a job: sbatch passes on only marlnb's variables of the shell."""
        if self.profile.executor != "slurm" or self.on_node:
            return self.environment
        from marlnb.batch.slurm.script import exports

        login = {name: os.environ[name] for name in _LOGIN_VARIABLES if name in os.environ}
        return {**login, **exports(self.profile, os.environ)}

    def for_node(self) -> DoctorRequest:
        """The same request for a process on the node."""
        return replace(self, on_node=True)

    def as_batch(self) -> Batch:
        """The batch that would be submitted; nothing is written."""
        name = self.notebook.name if self.notebook else "notebook.ipynb"
        return Batch(self.folder, name, self.sweep, self.profile, self.cwd)

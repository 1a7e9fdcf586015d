"""The SLURM executor before commands that answer as a real SLURM did; `make cluster-test` drives a real one."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from marlnb.batch.executor import Executor, Known
from marlnb.batch.executors.slurm import SlurmExecutor
from marlnb.batch.folder import REPORT, Batch
from marlnb.batch.job import JOB_LOCK, Job
from marlnb.batch.profile import Profile
from marlnb.batch.run_job import _indexed
from marlnb.batch.sweep import Sweep
from marlnb.errors import BatchError
from marlnb.training.files import STOP
from marlnb.training.lock import RunLock

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")
CONFIG = "AccountingStorageType   = accounting_storage/{storage}\nMaxArraySize            = {largest}\n"


class Scheduler:
    """Commands of the names of SLURM's that write down how they were called and print what they were given to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "calls"
        self._log.touch()
        for name in COMMANDS:
            script = folder / name
            said = shlex.quote(str(folder / name))
            script.write_text(
                f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >> {shlex.quote(str(self._log))}\n'
                f"env | grep -E '^(SLURM|SBATCH|SQUEUE)' > {said}.env\n"
                f"[ -e {said}.refuses ] && {{ cat {said}.refuses >&2; exit 1; }}\n"
                f"[ {name} = sbatch ] && {{ n=$(grep -c ^sbatch {shlex.quote(str(self._log))}); echo $((40 + n)); exit; }}\n"
                f"[ -e {said}.says ] && cat {said}.says; true\n"
            )
            script.chmod(0o700)
        self.configure()

    def configure(self, largest: int = 1001, storage: str = "none") -> None:
        self.says("scontrol", CONFIG.format(storage=storage, largest=largest))

    def says(self, command: str, text: str) -> None:
        (self.folder / f"{command}.says").write_text(text)

    def refuses(self, command: str, text: str) -> None:
        (self.folder / f"{command}.refuses").write_text(text)

    def calls(self) -> list[str]:
        """Since the last time that this was asked."""
        found = self._log.read_text().splitlines()
        self._log.write_text("".join(f"{line}\n" for line in found if line.startswith("sbatch")))
        told = [line for line in found if line not in self._told]
        self._told = [line for line in found if line.startswith("sbatch")]
        return told

    _told: list[str] = []

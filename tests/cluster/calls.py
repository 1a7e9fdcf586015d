"""Scheduler commands that are counted: each is written to a file, then the real one runs."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo")


def write_counted(folder: Path, log: Path) -> None:
    """Puts one script a command into a folder that comes first on PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS:
        real = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
        if real is None:
            raise RuntimeError(f"no {name} on this machine")
        script = folder / name
        script.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"${{SLURM_JOB_ID:-login}} {name} $(printf '%s ' \"$@\" | tr '\\n' ' ')\" "
            f'>> {shlex.quote(str(log))}\nexec {real} "$@"\n'
        )
        script.chmod(0o755)


class Calls:
    """The calls written since this was made.

    Each is a line `<where> <command> <arguments>`; where is `login`, or a job's id when the call came from within it.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        log.touch()
        self._begin = log.stat().st_size

    def lines(self, *, inside: bool = False) -> list[str]:
        """Calls from the login node; with `inside`, those from within jobs."""
        with open(self._log, "rb") as file:
            file.seek(self._begin)
            every_line = file.read().decode(errors="replace").splitlines()
        return [line for line in every_line if line.startswith("login ") != inside]

"""Inspects recordings in forks of this process: the same walk under the same limits, without the start of Python.

`make crash-test` and `make fuzz` open new files in each of thousands of attempts, where that start takes most of the
time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from marlnb.recording.file import inspection, structure


def walk_in_forks() -> None:
    """From now on this process, and its forks, inspect files in forks."""
    with_forks = SimpleNamespace(DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired, run=_run)
    setattr(inspection, "subprocess", with_forks)  # noqa: B010


def _run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs the command of an inspection; its limit of processor time ends it if HDF5 loops."""
    memory_bytes, cpu_s, damaged, *paths = command[command.index(str(inspection.PROGRAM)) + 2 :]
    mapped_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writer, 1)
            sys.stdout = os.fdopen(1, "w")
            structure.main(int(memory_bytes) + mapped_bytes, int(cpu_s), damaged == "1", paths)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answers:
        output = answers.read()
    _, status = os.waitpid(child, 0)
    return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), output, b"")

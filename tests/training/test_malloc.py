"""Freed memory is used again instead of being returned to the system, counted in page faults of a fresh process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from marlnb.training.malloc import ENVIRONMENT

ROUND_BYTES = 6 * 4 * 2**20

SCRIPT = """
import resource
from marlnb.training.malloc import keep_freed_memory
if {kept}:
    keep_freed_memory()
def fill():
    return [b"x" * (4 * 2**20) for _ in range(6)]
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kept: bool) -> int:
    """Page faults of ten rounds that fill and free 24 MiB."""
    environment = {key: value for key, value in os.environ.items() if key not in ENVIRONMENT}
    command = [sys.executable, "-c", SCRIPT.format(kept=kept)]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_freed_memory_is_used_again() -> None:
    pages = ROUND_BYTES // os.sysconf("SC_PAGESIZE")
    assert faults(kept=True) < pages
    assert faults(kept=False) > 5 * pages  # or glibc does by itself what keep_freed_memory is for

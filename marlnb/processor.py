"""What is known of this machine's processor."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path


@cache
def processor_facts(*names: str) -> str:
    """The line of /proc/cpuinfo that begins with one of `names`; `platform.processor()` where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(names)), platform.processor())


def is_intel() -> bool:
    return "GenuineIntel" in processor_facts("vendor_id")

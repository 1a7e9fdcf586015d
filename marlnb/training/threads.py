"""How many cores this process may use, and torch's threads for the time of a training step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores by affinity, and by the container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CGROUP_QUOTA.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Sets torch's threads, 0: one for each usable core, and restores them."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)

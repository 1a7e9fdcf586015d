"""Machine: the cores, GPUs and memory that jobs here may use, found without importing torch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def core_numbers() -> list[int]:
    """Cores to which a process may be bound; none where the system cannot bind."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def memory_gb() -> float:
    """Memory of this machine, or of the container, in GB (1e9 bytes)."""
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = MEMORY_LIMIT.read_text().strip()
    except OSError:
        limit = "max"
    return (min(have, int(limit)) if limit.isdigit() else have) / 1e9


def gpu_names(environment: Mapping[str, str], listing: Callable[[], str | None] | None = None) -> list[str]:
    """GPUs as CUDA_VISIBLE_DEVICES names them.

    Where that variable is set already, as by a scheduler or by the user, its members are all there are; whatever they
    are: numbers, UUIDs or parts of a GPU (MIG). Otherwise UUIDs, which mean the same to every library.

    Args:
        listing: what `nvidia-smi -L` prints, None where there is none.
    """
    if VISIBLE in environment:
        members = [word.strip() for word in environment[VISIBLE].split(",")]
        valid = [word for word in members if word]
        negative = [index for index, word in enumerate(valid) if word.startswith("-") or word == "NoDevFiles"]
        return valid[: negative[0]] if negative else valid  # CUDA sees none after an invalid one
    listed = (listing or _nvidia_smi)()
    return parse_listing(listed) if listed is not None else _from_proc()


def parse_listing(text: str) -> list[str]:
    """UUIDs from `nvidia-smi -L`; of a GPU that is split, those of its parts: the whole cannot be used then."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if whole := _GPU.match(line):
            found.append([whole[1]])
        elif (part := _MIG.match(line)) and found:
            found[-1].append(part[1])
    return [name for whole, *parts in found for name in (parts or [whole])]


def _nvidia_smi() -> str | None:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _from_proc() -> list[str]:
    texts = [path.read_text() for path in sorted(NVIDIA_GPUS.glob("*/information"))]
    return [found[1] for text in texts if (found := re.search(r"GPU UUID:\s*(GPU-\S+)", text))]

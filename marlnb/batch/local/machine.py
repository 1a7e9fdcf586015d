"""The cores, GPUs and memory of this machine that jobs may use, detected without importing torch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


def core_numbers() -> list[int]:
    """Cores to which a process can be bound; empty where the system does not support binding."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def memory_gb() -> float:
    """Memory of this machine, or of the container, in GB (1e9 bytes)."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = MEMORY_LIMIT.read_text().strip()
    except OSError:
        limit = "max"
    return (min(installed, int(limit)) if limit.isdigit() else installed) / 1e9


def gpu_names(environment: Mapping[str, str], listing: Callable[[], str | None] | None = None) -> list[str]:
    """GPUs, as CUDA_VISIBLE_DEVICES names them.

    If a scheduler or the user has set that variable, its members are used: numbers, UUIDs or parts of a GPU (MIG).
    Otherwise the UUIDs, which mean the same to every library.

    Args:
        environment: environment variables.
        listing: returns the output of `nvidia-smi -L`, None without that program.
    """
    if VISIBLE_GPUS in environment:
        members = [word.strip() for word in environment[VISIBLE_GPUS].split(",")]
        valid = [word for word in members if word]
        negative = [index for index, word in enumerate(valid) if word.startswith("-") or word == "NoDevFiles"]
        return valid[: negative[0]] if negative else valid  # CUDA ignores everything after an invalid one
    listed = (listing or _nvidia_smi)()
    return parse_listing(listed) if listed is not None else _from_proc()


def parse_listing(text: str) -> list[str]:
    """UUIDs from `nvidia-smi -L`; for a partitioned GPU those of its parts, since the whole cannot be used."""
    gpus: list[list[str]] = []
    for line in text.splitlines():
        if whole := _GPU.match(line):
            gpus.append([whole[1]])
        elif (part := _MIG.match(line)) and gpus:
            gpus[-1].append(part[1])
    return [name for whole, *parts in gpus for name in (parts or [whole])]


def _nvidia_smi() -> str | None:
    try:
        process = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None


def _from_proc() -> list[str]:
    texts = [path.read_text() for path in sorted(NVIDIA_GPUS.glob("*/information"))]
    return [match[1] for text in texts if (match := re.search(r"GPU UUID:\s*(GPU-\S+)", text))]

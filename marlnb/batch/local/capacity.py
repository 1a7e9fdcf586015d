"""How many jobs of a profile this machine can run in parallel, and whether it can run one at all."""

from __future__ import annotations

import os
import shutil

from marlnb.allocations import usable_cores
from marlnb.batch.local.machine import gpu_names, memory_gb
from marlnb.batch.profile import Profile
from marlnb.errors import BatchError

SCHEDULER_KEYS = ("partition", "account", "qos", "constraint", "gres", "options", "modules", "setup")


def n_parallel_jobs(profile: Profile, n_gpus: int) -> int:
    """`at_once` of the profile, else as many as there are cores, GPUs and memory for; at least 1."""
    if profile.at_once:
        return profile.at_once
    limits = [usable_cores() // profile.cores]
    if profile.gpus:
        limits.append(n_gpus // profile.gpus)
    if profile.memory_gb is not None:
        limits.append(int(memory_gb() / profile.memory_gb))
    return max(1, min(limits))


def check_capacity(profile: Profile) -> None:
    """Checks that this machine can run one job.

    Raises:
        BatchError: it cannot, or the profile has keys that only a scheduler understands.
    """
    scheduler_keys = [name for name in SCHEDULER_KEYS if getattr(profile, name)]
    if scheduler_keys:
        raise BatchError(
            f"profile: the local executor does not support {', '.join(scheduler_keys)}; remove these keys, or set "
            "executor: slurm"
        )
    if shutil.which(profile.interpreter, path=profile.environment.get("PATH")) is None:
        raise BatchError(f"profile: python is {profile.interpreter}, which is no executable file; give another path")
    if profile.cores > usable_cores():
        raise BatchError(f"profile: cores is {profile.cores}, but this machine has {usable_cores()}; set it lower")
    gpus = gpu_names(os.environ) if profile.gpus else []
    if profile.gpus > len(gpus):
        listed = f" ({', '.join(gpus)})" if gpus else ""
        raise BatchError(f"profile: gpus is {profile.gpus}, but this machine has {len(gpus)}{listed}; set it lower")
    if profile.memory_gb is not None and profile.memory_gb > memory_gb():
        raise BatchError(
            f"profile: memory_gb is {profile.memory_gb:g}, but this machine has {memory_gb():.1f} GB; set it lower"
        )
    if profile.time_limit_s is not None and profile.time_limit_s <= profile.warn_s:
        raise BatchError(
            f"profile: time_limit {profile.time_limit} must be longer than warn_s, {profile.warn_s} s: a job is asked "
            "to save that long before the limit"
        )

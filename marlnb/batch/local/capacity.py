"""Room: how many jobs of a profile this machine runs side by side, and whether it can run one at all."""

from __future__ import annotations

import os

from marlnb.batch.local.machine import gpu_names, memory_gb
from marlnb.batch.profile import Profile
from marlnb.cores import usable_cores
from marlnb.errors import BatchError

OF_SCHEDULERS = ("partition", "account", "qos", "constraint", "gres", "options", "modules", "setup")


def jobs_at_once(profile: Profile, n_gpus: int) -> int:
    """What the profile says, else as many as there are cores, GPUs and memory for; at least 1."""
    if profile.at_once:
        return profile.at_once
    room = [usable_cores() // profile.cores]
    if profile.gpus:
        room.append(n_gpus // profile.gpus)
    if profile.memory_gb is not None:
        room.append(int(memory_gb() / profile.memory_gb))
    return max(1, min(room))


def check_room(profile: Profile) -> None:
    """Raises BatchError when not even one job has room, or the profile asks for what only a scheduler gives."""
    asked = [name for name in OF_SCHEDULERS if getattr(profile, name)]
    if asked:
        raise BatchError(
            f"profile: the local executor has nothing for {', '.join(asked)}; leave that out, or give executor: slurm"
        )
    if profile.cores > usable_cores():
        raise BatchError(f"profile: a job asks for {profile.cores} cores; this machine has {usable_cores()}")
    gpus = gpu_names(os.environ) if profile.gpus else []
    if profile.gpus > len(gpus):
        listed = f" ({', '.join(gpus)})" if gpus else ""
        raise BatchError(f"profile: a job asks for {profile.gpus} GPUs; this machine has {len(gpus)}{listed}")
    if profile.memory_gb is not None and profile.memory_gb > memory_gb():
        raise BatchError(
            f"profile: a job asks for {profile.memory_gb:g} GB of memory; this machine has {memory_gb():.1f} GB"
        )
    if profile.time_limit_s is not None and profile.time_limit_s <= profile.warn_s:
        raise BatchError(
            f"profile: time_limit {profile.time_limit} is not longer than the {profile.warn_s} s (warn_s) before it, "
            "at which a job is told to save"
        )

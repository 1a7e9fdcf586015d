"""Whether the envs fit into the memory of their device, before anything is allocated."""

from __future__ import annotations

from pathlib import Path

import torch

from marlnb.display.formatting import format_bytes
from marlnb.envs.steps import tensors
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import Rules
from marlnb.envs.vector import allocate_step
from marlnb.errors import EnvBuildError
from marlnb.specs import EnvSpec

MEMORY_FILE = Path("/proc/meminfo")


@torch.no_grad()
def bytes_per_env(rules: Rules, device: torch.device) -> int:
    """What a step needs for each env at least: buffers and the observation that is copied into them; the state, the
    next one, and the initial one. Networks and rollouts are not included."""
    start = rules.start(Draws(torch.zeros(1, dtype=torch.int64, device=device)))
    state = sum(value.nbytes for value in start.values() if isinstance(value, torch.Tensor))
    return 2 * buffer_bytes(rules.spec) + 3 * state


def buffer_bytes(spec: EnvSpec) -> int:
    """Of one env's buffers."""
    return sum(tensor.nbytes for tensor in tensors(allocate_step(spec, 1, "cpu")))


def check_memory(name: str, env_bytes: int, n_envs: int, device: torch.device) -> None:
    """Raises EnvBuildError if so many envs cannot fit into the device's free memory; it says how many would.

    Args:
        name: of the environment.
        env_bytes: that each env needs at least.
    """
    free = free_bytes(device)
    if free is not None and n_envs * env_bytes > free:
        raise EnvBuildError(
            f"{name}: {n_envs:,} envs need at least {format_bytes(n_envs * env_bytes)} on {device}, "
            f"{format_bytes(env_bytes)} each; {format_bytes(free)} are free, enough for {free // env_bytes:,} envs, "
            "without networks and rollout",
            at="n_envs",
        )


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a GPU or of this machine; None where it is not known. On a GPU, with what torch can use again."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    lines = MEMORY_FILE.read_text().splitlines() if MEMORY_FILE.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)

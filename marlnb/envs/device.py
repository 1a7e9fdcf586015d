"""Devices: whether this machine has the one that was requested."""

from __future__ import annotations

import torch

from marlnb.errors import ConfigError


def check_device(device: str | torch.device) -> torch.device:
    """Raises ConfigError if this machine has no such device."""
    n_gpus = torch.cuda.device_count()
    devices = ", ".join(["cpu", *(f"cuda:{index}" for index in range(n_gpus))])
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"no device {device!r}; valid: {devices}") from error
    if parsed.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r} cannot be trained on; valid: {devices}")
    if parsed.type == "cuda" and (parsed.index or 0) >= n_gpus:
        raise ConfigError(f"no device {device!r}; torch finds {n_gpus} CUDA devices here; valid: {devices}")
    return parsed

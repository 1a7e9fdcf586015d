"""Uniform numbers as a pure function of a seed and a counter: the same on every device and for any number of envs."""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


def uniform(seed: Tensor, n: int) -> Tensor:
    """`n` numbers in [0, 1) for each seed.

    Args:
        seed: `[env]` int64.
    Returns:
        `[n, env]` float64, 53 random bits each.
    Source: splitmix64 (Steele, Lea, Flood 2014): number k is mix(mix(seed + gamma) + k * gamma) >> 11, times 2**-53.
    """
    counter = torch.arange(1, n + 1, device=seed.device).mul_(_GOLDEN)
    mixed = _mix(_mix(seed + _GOLDEN) + counter[:, None])
    return _shift(mixed, 11).double().mul_(2.0**-53)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of 64 bits, which torch lacks for int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)

"""The nearest agents of each agent in torch, on any device: the reference of the kernel."""

from __future__ import annotations

import torch
from torch import Tensor

ID_BITS = 20
NO_AGENT = 1 << 62  # a key larger than every other
MAX_PAIRS = {"cpu": 1 << 18, "cuda": 1 << 26}  # keys in memory at once; 2 MB stay in the cache of a CPU


def nearest(x: Tensor, y: Tensor, is_candidate: Tensor, k: int) -> Tensor:
    """As `neighbours.nearest`."""
    n = x.shape[1]
    per_chunk = max(1, MAX_PAIRS[x.device.type] // (n * n))
    parts = zip(x.split(per_chunk), y.split(per_chunk), is_candidate.split(per_chunk))
    return torch.cat([_nearest(*part, k) for part in parts])


def _nearest(x: Tensor, y: Tensor, is_candidate: Tensor, k: int) -> Tensor:
    """Sorts by one integer for each pair: the bits of the distance, which order as the numbers do, and the id."""
    ids = torch.arange(x.shape[1], device=x.device)
    bits = distance(x[:, :, None], y[:, :, None], x[:, None], y[:, None]).view(torch.int32)
    keys = torch.add(torch.where(is_candidate, ids, NO_AGENT)[:, None], bits, alpha=1 << ID_BITS)
    keys.diagonal(dim1=1, dim2=2).fill_(NO_AGENT)
    smallest = keys.topk(k, largest=False, sorted=True).values
    return torch.where(smallest < NO_AGENT, smallest & ((1 << ID_BITS) - 1), -1)


def distance(x: Tensor, y: Tensor, other_x: Tensor, other_y: Tensor) -> Tensor:
    """sqrt((x' - x)² + (y' - y)²), each operation rounded to float32."""
    dx, dy = other_x - x, other_y - y
    return dx.mul_(dx).add_(dy.mul_(dy)).sqrt_()

"""The nearest agents of each agent, exactly: by float32 distance, then by id."""

from __future__ import annotations

from torch import Tensor

from marlnb.envs.tag import neighbours_torch, neighbours_triton


def nearest(x: Tensor, y: Tensor, is_candidate: Tensor, k: int) -> Tensor:
    """The ids of the k candidates that are nearest to each agent, not counting itself.

    Agents in one corner have equal distances to all others, so ties are common; the smaller id comes first.

    Args:
        x: `[env, agent]` float32.
        y: `[env, agent]` float32.
        is_candidate: `[env, agent]` bool: whether others can find it.
        k: at most agents - 1.
    Returns:
        `[env, agent, k]` int64, nearest first; -1 where there are fewer than k candidates.
    """
    has_kernel = x.device.type == "cuda" and neighbours_triton.is_available()
    return (neighbours_triton if has_kernel else neighbours_torch).nearest(x, y, is_candidate, k)

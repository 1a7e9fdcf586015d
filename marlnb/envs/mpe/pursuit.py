"""Shared by the two scenarios in which adversaries chase good agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World


def chaser_names(n: int) -> list[str]:
    return [f"adversary_{i}" for i in range(n)]


def caught(world: World, n_adversaries: int) -> Tensor:
    """`[adversary, good, env]` bool: the adversary touches the good agent."""
    return world.touching(slice(n_adversaries), slice(n_adversaries, world.n_agents))


def out_of_bounds(world: World, agents: slice) -> Tensor:
    """`[agent, env]`: the penalty for leaving the square.

    Per axis, with x = abs(position): 0 for x < 0.9; 10 (x - 0.9) for x < 1; min(exp(2x - 2), 10) beyond.
    """
    x = world.position[:, : world.n_agents][:, agents].abs()
    inside = (x - 0.9).mul_(10).clamp_(min=0)
    outside = (2 * x - 2).exp_().clamp_(max=10)
    return outside.where(x >= 1, inside).sum(0)

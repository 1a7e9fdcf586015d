"""What the two scenarios of adversaries that chase good agents have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World


def chaser_names(n: int) -> list[str]:
    return [f"adversary_{i}" for i in range(n)]


def caught(world: World, n_adversaries: int) -> Tensor:
    """Which adversary touches which good agent, `[adversary, good, env]` bool."""
    return world.touching(slice(n_adversaries), slice(n_adversaries, world.n_agents))


def out_of_bounds(world: World, agents: slice) -> Tensor:
    """The penalty for leaving the square, `[agent, env]`: per axis 0 below 0.9, 1 at 1, then exponential up to 10."""
    x = world.position[:, : world.n_agents][:, agents].abs()
    inside = (x - 0.9).mul_(10).clamp_(min=0)
    outside = (2 * x - 2).exp_().clamp_(max=10)
    return outside.where(x >= 1, inside).sum(0)

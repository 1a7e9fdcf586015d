"""Calls: an MPE-like world in which agents hear rare calls, a few of many at a time, drawn anew at every step.

Three agents move freely among three landmarks and nothing collides. Every agent hears the same. One of three *signals*
is there at a step with SIGNAL probability each, never two of them. Each has a *rumour*, which comes with it more often
than not and now and then without it. The other calls, N_OTHERS, come each for itself with OTHER probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.config import option
from marlnb.envs.mpe.env import MPE
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import MPEConfig, Scenario, block
from marlnb.envs.mpe.world import World
from marlnb.groundtruth.envs.cued_goal import EPISODE_STEPS, Told, with_clock
from marlnb.specs import LabelSpec

N_SIGNALS, N_OTHERS = 3, 30
SIGNAL, OTHER, RUMOUR_WITH, RUMOUR_WITHOUT = 0.08, 0.05, 0.7, 0.03
SIGNALS = tuple(f"signal_{k}" for k in range(N_SIGNALS))
RUMOURS = tuple(f"rumour_{k}" for k in range(N_SIGNALS))
OTHERS = tuple(f"call_{k}" for k in range(N_OTHERS))
N_DRAWN = 1 + N_SIGNALS + N_OTHERS


@dataclass(frozen=True)
class CallsConfig(MPEConfig):
    """Three agents hear rare calls; three of them are signals."""

    name: ClassVar[str] = "groundtruth/calls"
    mpe2_module: ClassVar[str] = "marlnb.groundtruth.envs.sparse_signals"

    max_cycles: int = option(EPISODE_STEPS, help="length of an episode", unit="steps", ge=EPISODE_STEPS)

    def scenario(self) -> Scenario:
        return CallsScenario()

    def build(self, n_envs: int, device: str = "cpu") -> MPE:
        return Told(self, n_envs, device)


class CallsScenario(Scenario):
    choices: ClassVar = {"draw": 2**20}

    def __init__(self) -> None:
        agents = [Body(f"agent_{i}", collide=False) for i in range(3)]
        super().__init__(agents, [Body(f"landmark_{i}", collide=False, movable=False) for i in range(3)])

    def layout(self) -> Layout:
        return with_clock(super().layout(), self.blocks(), self.constants())

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {"signal": (N_SIGNALS,), "rumour": (N_SIGNALS,), "call": (N_OTHERS,)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        seen = self.own(layout, agent) + self.to_landmarks(layout, agent) + self.to_others(layout, agent)
        heard = (("signal", SIGNALS), ("rumour", RUMOURS), ("call", OTHERS))
        return seen + [feature for name, names in heard for feature in block(layout, name, names)]

    def begin(self, world: World) -> None:
        world["clock"].zero_()

    def refresh(self, world: World) -> None:
        drawn = uniforms(world.choice["draw"], world["clock"][0])
        which = torch.arange(N_SIGNALS, device=world.device)[:, None] == (drawn[0] / SIGNAL).floor()
        world["signal"].copy_(which)
        world["rumour"].copy_(drawn[1 : 1 + N_SIGNALS] < torch.where(which, RUMOUR_WITH, RUMOUR_WITHOUT))
        world["call"].copy_(drawn[1 + N_SIGNALS :] < OTHER)

    def reward(self, world: World, out: Tensor) -> None:
        out.zero_()

    def labels(self) -> tuple[LabelSpec, ...]:
        return (LabelSpec("signal", None, ("none", *SIGNALS)),)

    def read_labels(self, world: World) -> dict[str, Tensor]:
        numbers = torch.arange(1, N_SIGNALS + 1, device=world.device, dtype=world.rows.dtype)
        return {"signal": (world["signal"] * numbers[:, None]).sum(0).long()}


def uniforms(draw: Tensor, clock: Tensor) -> Tensor:
    """`[N_DRAWN, env]` in 0..1, fixed by the episode's draw and the step, so that any moment can be told again.

    Args:
        draw: `[env]` int64; clock: `[env]`, steps since the start.
    Source: the finaliser of MurmurHash3, over 32 bits.
    """
    number = torch.arange(N_DRAWN, device=draw.device)[:, None]
    x = draw * 64 + clock.long() + number * 0x9E3779B1 & _MASK
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ x >> shift) * factor & _MASK
    return (x ^ x >> 16) / 2**32


_MASK = 2**32 - 1

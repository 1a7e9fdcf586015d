"""Sparse signals: an MPE environment in which agents observe rare events, redrawn at every step.

Three agents move among three landmarks without collisions. All agents observe the same events. Each of three *signals*
is on with probability SIGNAL, never two at once. Each signal has a *rumour*, on with probability RUMOUR_WITH if the
signal is on, else RUMOUR_WITHOUT. N_DISTRACTORS independent *distractors* are each on with probability DISTRACTOR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.envs.mpe.scenario import Scenario
from marlnb.envs.mpe.world import World
from marlnb.groundtruth.envs.cued_goal import ClockedConfig, ClockedScenario
from marlnb.specs import LabelSpec

N_SIGNALS, N_DISTRACTORS = 3, 30
SIGNAL, DISTRACTOR, RUMOUR_WITH, RUMOUR_WITHOUT = 0.08, 0.05, 0.7, 0.03
SIGNALS = tuple(f"signal_{k}" for k in range(N_SIGNALS))
RUMOURS = tuple(f"rumour_{k}" for k in range(N_SIGNALS))
DISTRACTORS = tuple(f"distractor_{k}" for k in range(N_DISTRACTORS))
N_DRAWN = 1 + N_SIGNALS + N_DISTRACTORS


@dataclass(frozen=True)
class SparseSignalsConfig(ClockedConfig):
    """Three agents observe rare events. Three of the events are signals."""

    name: ClassVar[str] = "groundtruth/sparse_signals"
    mpe2_module: ClassVar[str] = "marlnb.groundtruth.envs.sparse_signals"

    def scenario(self) -> Scenario:
        return SparseSignalsScenario()


class SparseSignalsScenario(ClockedScenario):
    choices: ClassVar = {"draw": 2**20}
    events: ClassVar = {"signal": SIGNALS, "rumour": RUMOURS, "distractor": DISTRACTORS}

    def refresh(self, world: World) -> None:
        drawn = uniforms(world.choice["draw"], world["clock"][0])
        signal = torch.arange(N_SIGNALS, device=world.device)[:, None] == (drawn[0] / SIGNAL).floor()
        world["signal"].copy_(signal)
        world["rumour"].copy_(drawn[1 : 1 + N_SIGNALS] < torch.where(signal, RUMOUR_WITH, RUMOUR_WITHOUT))
        world["distractor"].copy_(drawn[1 + N_SIGNALS :] < DISTRACTOR)

    def reward(self, world: World, out: Tensor) -> None:
        out.zero_()

    def labels(self) -> tuple[LabelSpec, ...]:
        return (LabelSpec("signal", None, ("none", *SIGNALS)),)

    def read_labels(self, world: World) -> dict[str, Tensor]:
        numbers = torch.arange(1, N_SIGNALS + 1, device=world.device, dtype=world.rows.dtype)
        return {"signal": (world["signal"] * numbers[:, None]).sum(0).long()}


def uniforms(draw: Tensor, clock: Tensor) -> Tensor:
    """Uniform numbers `[N_DRAWN, env]` in [0, 1), a function of the episode's random number and the step.

    Args:
        draw: `[env]` int64, the episode's random number.
        clock: `[env]`, steps since the start of the episode.
    Source: MurmurHash3, 32-bit finalizer.
    """
    number = torch.arange(N_DRAWN, device=draw.device)[:, None]
    x = draw * 64 + clock.long() + number * 0x9E3779B1 & _MASK
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ x >> shift) * factor & _MASK
    return (x ^ x >> 16) / 2**32


_MASK = 2**32 - 1

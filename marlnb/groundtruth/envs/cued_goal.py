"""Told: an MPE-like world in which agents are told something at a random step and alarmed at another.

Three agents move freely among three landmarks and nothing collides. Every agent hears the same: at step `told_at` which
landmark is the partner's goal (one of three numbers is 1), at step `alarm_at` an alarm. Each lasts one step, or, with
`holds`, to the episode's end: then a network without a memory can follow it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.config import option
from marlnb.envs.mpe.env import MPE
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import MPEConfig, Scenario, block
from marlnb.envs.mpe.world import World
from marlnb.envs.vector import Step
from marlnb.specs import LabelSpec

GOALS = ("red", "green", "blue")
TOLD = tuple(f"partner_goal_{goal}" for goal in GOALS)
ALARM = "alarm"
EPISODE_STEPS = 16


@dataclass(frozen=True)
class ToldConfig(MPEConfig):
    """Three agents are told the partner's goal at one step of an episode and alarmed at another."""

    name: ClassVar[str] = "groundtruth/told"
    mpe2_module: ClassVar[str] = "marlnb.groundtruth.envs.cued_goal"

    max_cycles: int = option(EPISODE_STEPS, help="length of an episode", unit="steps", ge=EPISODE_STEPS)
    holds: bool = option(False, help="what is told, and the alarm, last to the episode's end instead of one step")

    def scenario(self) -> Scenario:
        return ToldScenario(self.holds)

    def build(self, n_envs: int, device: str = "cpu") -> MPE:
        return Told(self, n_envs, device)


class ToldScenario(Scenario):
    choices: ClassVar = {"goal": 3, "told": 5, "alarm": 5}

    def __init__(self, holds: bool) -> None:
        agents = [Body(f"agent_{i}", collide=False) for i in range(3)]
        super().__init__(agents, [Body(f"landmark_{i}", collide=False, movable=False) for i in range(3)])
        self.holds = holds

    def layout(self) -> Layout:
        return with_clock(super().layout(), self.blocks(), self.constants())

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {"told": (3,), "alarm": (1,)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        seen = self.own(layout, agent) + self.to_landmarks(layout, agent) + self.to_others(layout, agent)
        return seen + block(layout, "told", TOLD) + block(layout, "alarm", [ALARM])

    def begin(self, world: World) -> None:
        world["clock"].zero_()

    def refresh(self, world: World) -> None:
        clock = world["clock"][0]
        goals = torch.arange(3, device=world.device)[:, None] == world.choice["goal"]
        world["told"].copy_(goals & self._heard(clock, told_at(world)))
        world["alarm"].copy_(self._heard(clock, alarm_at(world)))

    def reward(self, world: World, out: Tensor) -> None:
        out.copy_(world.distance_to(world.choice["goal"])).neg_()

    def labels(self) -> tuple[LabelSpec, ...]:
        untold = ("untold", *GOALS)
        return (LabelSpec("partner_goal", None, untold), LabelSpec("role", None, ("before", "after")))

    def read_labels(self, world: World) -> dict[str, Tensor]:
        """What an agent that remembers may know: the goal once it was told, the role since the alarm."""
        clock = world["clock"][0]
        known = clock >= told_at(world)
        return {"partner_goal": (world.choice["goal"] + 1) * known, "role": (clock >= alarm_at(world)).long()}

    def _heard(self, clock: Tensor, at: Tensor) -> Tensor:
        return (clock >= at) if self.holds else (clock == at)


class Told(MPE):
    """Copies of a scenario whose clock is part of the world."""

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        self.world["clock"].add_(1)
        return super().step(actions)


def with_clock(layout: Layout, blocks: Mapping[str, tuple[int, ...]], constants: tuple[float, ...]) -> Layout:
    """As other scenarios', the clock among the rows that say what an episode is at."""
    first = {name: layout.shapes[name] for name in ("position", "velocity", "message")}
    return Layout({**first, "clock": (1,), "delta": layout.shapes["delta"], **blocks}, constants)


def told_at(world: World) -> Tensor:
    """`[env]`: 1, 3, 5, 7 or 9."""
    return 1 + 2 * world.choice["told"]


def alarm_at(world: World) -> Tensor:
    """`[env]`: 2, 5, 8, 11 or 14."""
    return 2 + 3 * world.choice["alarm"]

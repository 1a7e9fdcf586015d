"""Cued goal: an MPE environment in which agents receive a cue at one random step and an alarm at another.

Three agents move among three landmarks without collisions. All agents observe the same cue and alarm. At `cue_step`
the cue shows which landmark is the partner's goal (one-hot). At `alarm_step` the alarm is 1. Each lasts one step. With
`persistent`, each lasts until the episode ends, so networks without memory can use it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.config import option
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario, block
from marlnb.envs.mpe.world import World
from marlnb.specs import LabelSpec

GOALS = ("red", "green", "blue")
CUES = tuple(f"partner_goal_{goal}" for goal in GOALS)
ALARM = "alarm"
EPISODE_STEPS = 16


@dataclass(frozen=True)
class ClockedConfig(MPEConfig):
    """Options of the environments whose agents observe events at certain steps of an episode."""

    max_cycles: int = option(EPISODE_STEPS, help="length of an episode", unit="steps", ge=EPISODE_STEPS)


class ClockedScenario(Scenario):
    """Three agents move among three landmarks without collisions. An episode's steps are counted in `clock`.

    Attributes:
        events: by block of rows, the names of the features that all agents observe.
    """

    events: ClassVar[Mapping[str, Sequence[str]]]

    def __init__(self) -> None:
        agents = [Body(f"agent_{i}", collide=False) for i in range(3)]
        super().__init__(agents, [Body(f"landmark_{i}", collide=False, movable=False) for i in range(3)])

    def layout(self) -> Layout:
        """The standard layout, with the clock among an episode's state rows."""
        shapes = super().layout().shapes
        state_shapes = {name: shapes[name] for name in ("position", "velocity", "message")}
        blocks = {**state_shapes, "clock": (1,), "delta": shapes["delta"], **self.blocks()}
        return Layout(blocks, self.constants(), {"distance": shapes["distance"]})

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {name: (len(features),) for name, features in self.events.items()}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        parts = (self.self_features, self.landmark_features, self.other_features)
        observed = [feature for part in parts for feature in part(layout, agent)]
        return observed + [row for name, features in self.events.items() for row in block(layout, name, features)]

    def begin(self, world: World) -> None:
        world["clock"].zero_()

    def advance(self, world: World) -> None:
        world["clock"].add_(1)
        super().advance(world)


@dataclass(frozen=True)
class CuedGoalConfig(ClockedConfig):
    """Three agents observe the partner's goal at one step of an episode and an alarm at another."""

    name: ClassVar[str] = "groundtruth/cued_goal"
    mpe2_module: ClassVar[str] = "marlnb.groundtruth.envs.cued_goal"

    persistent: bool = option(False, help="cue and alarm last until the episode ends, not one step")

    def scenario(self) -> Scenario:
        return CuedGoalScenario(self.persistent)


class CuedGoalScenario(ClockedScenario):
    choices: ClassVar = {"goal": 3, "cue": 5, "alarm": 5}
    events: ClassVar = {"cue": CUES, "alarm": (ALARM,)}

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.persistent = persistent

    def refresh(self, world: World) -> None:
        clock = world["clock"][0]
        goals = torch.arange(3, device=world.device)[:, None] == world.choice["goal"]
        world["cue"].copy_(goals & self._is_on(clock, cue_step(world)))
        world["alarm"].copy_(self._is_on(clock, alarm_step(world)))

    def reward(self, world: World, out: Tensor) -> None:
        out.copy_(world.distance_to(world.choice["goal"])).neg_()

    def labels(self) -> tuple[LabelSpec, ...]:
        return (LabelSpec("partner_goal", None, ("unknown", *GOALS)), LabelSpec("role", None, ("before", "after")))

    def read_labels(self, world: World) -> dict[str, Tensor]:
        """What an agent with memory can know: the goal from the cue on, the role from the alarm on."""
        clock = world["clock"][0]
        known = clock >= cue_step(world)
        return {"partner_goal": (world.choice["goal"] + 1) * known, "role": (clock >= alarm_step(world)).long()}

    def _is_on(self, clock: Tensor, step: Tensor) -> Tensor:
        return (clock >= step) if self.persistent else (clock == step)


def cue_step(world: World) -> Tensor:
    """Step of the cue `[env]`: 1, 3, 5, 7 or 9."""
    return 1 + 2 * world.choice["cue"]


def alarm_step(world: World) -> Tensor:
    """Step of the alarm `[env]`: 2, 5, 8, 11 or 14."""
    return 2 + 3 * world.choice["alarm"]

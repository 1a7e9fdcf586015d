"""Slow adversaries chase faster good agents around obstacles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.partial_view import PartialView, PartialViewConfig
from marlnb.envs.mpe.scenario import Scenario
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

PREY_SPEED_BY_STAGE = (0.5, 0.75, 1.0)


@ENVIRONMENTS.register("mpe/simple_tag")
@dataclass(frozen=True)
class SimpleTagConfig(PartialViewConfig):
    """Each contact pays every adversary 10 and costs the good agent 10, which also pays for leaving the square."""

    mpe2_module: ClassVar[str] = "mpe2.simple_tag_v3"

    num_good: int = option(1, help="number of good agents, the prey", ge=1, le=256)
    num_adversaries: int = option(3, help="number of adversaries", ge=1, le=256)
    num_obstacles: int = option(2, help="number of obstacles", ge=0, le=256)
    terminate_on_success: bool = option(False, help="end the episode when all good agents are touched at the same time")
    curriculum: bool = option(False, help="slower prey in the first stages of the curriculum")
    curriculum_stage: int = option(0, help="stage of the curriculum; 2 is the full task", ge=0, le=2)

    def scenario(self) -> Scenario:
        return SimpleTag(self)


class SimpleTag(PartialView):
    rewards_groups_differently = True
    n_words = 2
    landmark_range = 0.9

    def __init__(self, config: SimpleTagConfig) -> None:
        pace = PREY_SPEED_BY_STAGE[config.curriculum_stage] if config.curriculum else 1.0
        adversaries = [Body(name, 0.075, accel=3.0, max_speed=1.0) for name in chaser_names(config.num_adversaries)]
        good = [Body(f"agent_{i}", 0.05, accel=4.0 * pace, max_speed=1.3 * pace) for i in range(config.num_good)]
        obstacles = [Body(f"landmark_{i}", 0.2, movable=False) for i in range(config.num_obstacles)]
        super().__init__([*adversaries, *good], obstacles, config)
        self.n_adversaries = config.num_adversaries
        self.velocity_seen_of = slice(self.n_adversaries, len(self.agents))
        self.may_finish = config.terminate_on_success

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        others = self.other_features(layout, agent) + self.velocity_features(layout, agent)
        return self.self_features(layout, agent) + self.landmark_features(layout, agent) + others

    def reward(self, world: World, out: Tensor) -> None:
        contacts = caught(world, self.n_adversaries).sum(0)
        out[: self.n_adversaries] = 10 * contacts.sum(0)
        out[self.n_adversaries :] = -10 * contacts - out_of_bounds(world, slice(self.n_adversaries, None))

    def finished(self, world: World) -> Tensor:
        return caught(world, self.n_adversaries).any(0).all(0)

    def labels(self) -> tuple[LabelSpec, ...]:
        return (
            LabelSpec("adversary_touches", "adversary", ("apart", "touching")),
            LabelSpec("agent_caught", "agent", ("free", "caught")),
            LabelSpec("adversary_prey_distance", "adversary"),
        )

    def read_labels(self, world: World) -> dict[str, Tensor]:
        touches = caught(world, self.n_adversaries)
        prey_distance = world.distance[: self.n_adversaries, self.n_adversaries : world.n_agents].amin(1)
        return {
            "adversary_touches": touches.any(1).t().long(),
            "agent_caught": touches.any(0).t().long(),
            "adversary_prey_distance": prey_distance.t(),
        }


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

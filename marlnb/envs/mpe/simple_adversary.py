"""Good agents know which landmark is the goal and must reach it without leading the adversary there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.partial_view import PartialView, PartialViewConfig
from marlnb.envs.mpe.scenario import Scenario, block, goal_labels, read_goal_labels
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

ADVERSARY = 0


@ENVIRONMENTS.register("mpe/simple_adversary")
@dataclass(frozen=True)
class SimpleAdversaryConfig(PartialViewConfig):
    """The adversary earns minus its goal distance; the good agents earn that distance minus their nearest one's."""

    mpe2_module: ClassVar[str] = "mpe2.simple_adversary_v3"

    N: int = option(2, help="number of good agents, and of landmarks", ge=1, le=256)

    def scenario(self) -> Scenario:
        return SimpleAdversary(self)


class SimpleAdversary(PartialView):
    rewards_groups_differently = True
    n_words = 2

    def __init__(self, config: SimpleAdversaryConfig) -> None:
        names = ["adversary_0", *(f"agent_{i}" for i in range(config.N))]
        agents = [Body(name, size=0.15, collide=False) for name in names]
        landmarks = [Body(f"landmark_{i}", size=0.08, collide=False, movable=False) for i in range(config.N)]
        super().__init__(agents, landmarks, config)
        self.choices = {"goal": config.N}  # type: ignore[misc]

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {**super().blocks(), "goal_delta": (len(self.agents), 2)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        bodies = self.landmark_features(layout, agent) + self.other_features(layout, agent)
        return bodies if agent == ADVERSARY else block(layout, "goal_delta", ("goal_dx", "goal_dy"), agent) + bodies

    def refresh(self, world: World) -> None:
        super().refresh(world)
        world["goal_delta"].copy_(world.delta_to(world.choice["goal"]).transpose(0, 1))

    def reward(self, world: World, out: Tensor) -> None:
        distance = world.distance_to(world.choice["goal"])
        out[ADVERSARY] = -distance[ADVERSARY]
        out[1:] = distance[ADVERSARY] - distance[1:].amin(0)

    def labels(self) -> tuple[LabelSpec, ...]:
        return goal_labels(self)

    def read_labels(self, world: World) -> dict[str, Tensor]:
        return read_goal_labels(world)

"""A good agent knows its goal among two landmarks; an adversary that does not know it must keep the agent away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario, block, goal_labels, read_goal_labels, show_at_start
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

LANDMARK_COLORS = ((0.1, 0.9, 0.1), (0.1, 0.1, 0.9))
AGENT_COLORS = ((0.25, 0.75, 0.25), (0.25, 0.25, 0.75))
COLOR_NAMES = ("red", "green", "blue")
ADVERSARY, AGENT = 0, 1


@ENVIRONMENTS.register("mpe/simple_push")
@dataclass(frozen=True)
class SimplePushConfig(MPEConfig):
    """The agent earns minus its distance to the goal; the adversary earns that distance minus its own."""

    mpe2_module: ClassVar[str] = "mpe2.simple_push_v3"

    goal_steps: int | None = option(
        None,
        help="how many observations of an episode, from the first, show the agent its goal, so that it must remember "
        "it; none: all",
        ge=1,
    )

    def scenario(self) -> Scenario:
        return SimplePush() if self.goal_steps is None else BriefGoalPush(self.goal_steps)


class SimplePush(Scenario):
    rewards_groups_differently = True
    n_words = 2
    choices: ClassVar = {"goal": 2}

    def __init__(self) -> None:
        landmarks = [Body(f"landmark_{i}", collide=False, movable=False) for i in range(2)]
        super().__init__([Body("adversary_0"), Body("agent_0")], landmarks)

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {"goal_delta": (2,), "own_color": (3,)}

    def constants(self) -> tuple[float, ...]:
        return (0.1, 0.9)

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        velocity = self.self_features(layout, agent, position=False)
        landmarks, others = self.landmark_features(layout, agent), self.other_features(layout, agent)
        if agent == ADVERSARY:
            return velocity + landmarks + others
        goal = block(layout, "goal_delta", ("goal_dx", "goal_dy"))
        goal_color = block(layout, "own_color", [f"goal_{color}" for color in COLOR_NAMES])
        colors = [
            (f"{landmark.name}_{name}", layout.constant(value))
            for landmark, color in zip(self.landmarks, LANDMARK_COLORS)
            for name, value in zip(COLOR_NAMES, color)
        ]
        return velocity + goal + goal_color + landmarks + colors + others

    def begin(self, world: World) -> None:
        world["own_color"].copy_(world.tensor(AGENT_COLORS).t()[:, world.choice["goal"]])

    def refresh(self, world: World) -> None:
        world["goal_delta"].copy_(world.delta_to(world.choice["goal"])[:, AGENT])

    def reward(self, world: World, out: Tensor) -> None:
        distance = world.distance_to(world.choice["goal"])
        out[ADVERSARY] = distance[AGENT] - distance[ADVERSARY]
        out[AGENT] = -distance[AGENT]

    def labels(self) -> tuple[LabelSpec, ...]:
        return goal_labels(self)

    def read_labels(self, world: World) -> dict[str, Tensor]:
        return read_goal_labels(world)


class BriefGoalPush(SimplePush):
    """The agent observes its goal at the start of an episode only, and zeros afterwards."""

    def __init__(self, goal_steps: int) -> None:
        super().__init__()
        self.goal_steps = goal_steps

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {**super().blocks(), "observations": (1,)}

    def begin(self, world: World) -> None:
        super().begin(world)
        world["observations"].zero_()

    def refresh(self, world: World) -> None:
        super().refresh(world)
        show_at_start(world, self.goal_steps, "goal_delta", "own_color")

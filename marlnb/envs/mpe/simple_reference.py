"""Two agents move and talk; each alone knows the landmark that the other must go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario, block
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

COLORS = ((0.75, 0.25, 0.25), (0.25, 0.75, 0.25), (0.25, 0.25, 0.75))
COLOR_NAMES = ("red", "green", "blue")


@ENVIRONMENTS.register("mpe/simple_reference")
@dataclass(frozen=True)
class SimpleReferenceConfig(MPEConfig):
    """Each earns minus the other's distance to the landmark that only it knows, mixed with the mean of both."""

    mpe2_module: ClassVar[str] = "mpe2.simple_reference_v3"

    local_ratio: float = option(0.5, help="weight of an agent's own reward against the shared one", ge=0, le=1)

    def scenario(self) -> Scenario:
        return SimpleReference(self.local_ratio)


class SimpleReference(Scenario):
    n_words = 10
    choices: ClassVar = {"told_by_0": 3, "told_by_1": 3}

    def __init__(self, local_ratio: float) -> None:
        agents = [Body(f"agent_{i}", collide=False, silent=False) for i in range(2)]
        super().__init__(agents, [Body(f"landmark_{i}", collide=False, movable=False) for i in range(3)])
        self.local_ratio = local_ratio

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {"goal_color": (2, 3)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        moving = self.self_features(layout, agent, position=False) + self.landmark_features(layout, agent)
        color = block(layout, "goal_color", [f"partner_goal_{name}" for name in COLOR_NAMES], agent)
        return moving + color + self.message_features(layout, 1 - agent)

    def begin(self, world: World) -> None:
        colors = world.tensor(COLORS).t()
        for agent in range(2):
            world["goal_color"][agent].copy_(colors[:, world.choice[f"told_by_{agent}"]])

    def reward(self, world: World, out: Tensor) -> None:
        """r_i = local_ratio * local_i + (1 - local_ratio) * mean(local); local_i: minus the other's goal distance."""
        # in place: temporaries make the reward a tenth slower
        for agent in range(2):
            out[agent] = world.distance_of(1 - agent, world.choice[f"told_by_{agent}"])
        global_reward = out.neg_().mean(0).mul_(1 - self.local_ratio)
        out.mul_(self.local_ratio).add_(global_reward)

    def labels(self) -> tuple[LabelSpec, ...]:
        return (
            LabelSpec("goal", "agent", COLOR_NAMES),
            LabelSpec("partner_goal", "agent", COLOR_NAMES),
            LabelSpec("goal_distance", "agent"),
        )

    def read_labels(self, world: World) -> dict[str, Tensor]:
        import torch  # here, so that reading the options does not import it

        goals = [world.choice[f"told_by_{1 - agent}"] for agent in range(2)]
        goal = torch.stack(goals, 1)
        distance = torch.stack([world.distance_to(goals[agent])[agent] for agent in range(2)], 1)
        return {"goal": goal, "partner_goal": goal.flip(1), "goal_distance": distance}

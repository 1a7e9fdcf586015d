"""N agents share the task of covering N landmarks without running into each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import option
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import MPEConfig, Scenario
from marlnb.registry import ENVIRONMENTS
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

CAPTURE_RADIUS = 0.1


@ENVIRONMENTS.register("mpe/simple_spread")
@dataclass(frozen=True)
class SimpleSpreadConfig(MPEConfig):
    """All earn minus the distance of every landmark to its nearest agent; each also -1 for every agent it touches."""

    mpe2_module = "mpe2.simple_spread_v3"

    N: int = option(3, help="number of agents, and of landmarks", ge=1)
    local_ratio: float = option(0.5, help="weight of an agent's own reward against the shared one", ge=0, le=1)

    def scenario(self) -> Scenario:
        return SimpleSpread(self)


class SimpleSpread(Scenario):
    n_words = 2

    def __init__(self, config: SimpleSpreadConfig) -> None:
        self.local_ratio = config.local_ratio
        agents = [Body(f"agent_{i}", size=0.15) for i in range(config.N)]
        landmarks = [Body(f"landmark_{i}", collide=False, movable=False) for i in range(config.N)]
        super().__init__(agents, landmarks)

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        silence = layout.constant(0.0)
        words = [(f"{name}_message_{word}", silence) for _, name in self.others(agent) for word in range(self.n_words)]
        seen = self.to_landmarks(layout, agent) + self.to_others(layout, agent)
        return self.own(layout, agent) + seen + words

    def reward(self, world: World, out: Tensor) -> None:
        shared = world.distance[:, world.n_agents :].amin(0).sum(0).mul_(self.local_ratio - 1)
        touches = (world.distance[:, : world.n_agents] < world.touching_below[:, : world.n_agents]).sum(1)
        out.copy_(touches).mul_(-self.local_ratio).add_(shared)

    def labels(self) -> tuple[LabelSpec, ...]:
        return (LabelSpec("landmarks_covered"), LabelSpec("touching", "agent", ("apart", "touching")))

    def read_labels(self, world: World) -> dict[str, Tensor]:
        covered = (world.distance[:, world.n_agents :].amin(0) < CAPTURE_RADIUS).sum(0).float()
        touches = (world.distance[:, : world.n_agents] < world.touching_below[:, : world.n_agents]).any(1)
        return {"landmarks_covered": covered, "touching": touches.t().long()}

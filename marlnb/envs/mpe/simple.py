"""One agent must go to one landmark: the smallest check that a learner works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World


@ENVIRONMENTS.register("mpe/simple")
@dataclass(frozen=True)
class SimpleConfig(MPEConfig):
    """One agent earns minus its squared distance to the landmark."""

    mpe2_module: ClassVar[str] = "mpe2.simple_v3"

    def scenario(self) -> Scenario:
        return Simple()


class Simple(Scenario):
    def __init__(self) -> None:
        super().__init__([Body("agent_0", collide=False)], [Body("landmark_0", collide=False, movable=False)])

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        return self.self_features(layout, agent, position=False) + self.landmark_features(layout, agent)

    def reward(self, world: World, out: Tensor) -> None:
        out.copy_(-world.distance[:, 1].square())

"""N agents share the task of covering N landmarks without running into each other."""

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

CAPTURE_RADIUS = 0.1


@ENVIRONMENTS.register("mpe/simple_spread")
@dataclass(frozen=True)
class SimpleSpreadConfig(PartialViewConfig):
    """All earn minus each landmark's distance to its nearest agent; each also loses 1 for every agent it touches."""

    mpe2_module: ClassVar[str] = "mpe2.simple_spread_v3"

    N: int = option(3, help="number of agents, and of landmarks", ge=1, le=256)
    local_ratio: float = option(0.5, help="weight of an agent's own reward against the shared one", ge=0, le=1)
    terminate_on_success: bool = option(False, help="end the episode once every landmark is covered")
    curriculum: bool = option(False, help="no penalty for touching in stage 0 of the curriculum")
    curriculum_stage: int = option(0, help="stage of the curriculum; 1 is the full task", ge=0, le=1)

    def scenario(self) -> Scenario:
        return SimpleSpread(self)


class SimpleSpread(PartialView):
    n_words = 2

    def __init__(self, config: SimpleSpreadConfig) -> None:
        agents = [Body(f"agent_{i}", size=0.15) for i in range(config.N)]
        landmarks = [Body(f"landmark_{i}", collide=False, movable=False) for i in range(config.N)]
        super().__init__(agents, landmarks, config)
        self.local_ratio = config.local_ratio
        self.penalises_contact = not config.curriculum or config.curriculum_stage >= 1
        self.may_finish = config.terminate_on_success

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        others = self.landmark_features(layout, agent) + self.other_features(layout, agent)
        return self.self_features(layout, agent) + others + self._silent_messages(layout, agent)

    def reward(self, world: World, out: Tensor) -> None:
        """r_i = local_ratio * -(number of agents that i touches) + (1 - local_ratio) * -(sum of landmark distances)."""
        # in place: temporaries cost 5 to 10% of a step
        global_reward = _landmark_distance(world).sum(0).mul_(-(1 - self.local_ratio))
        if self.penalises_contact:
            world.count_touching_agents(out)
            out.mul_(-self.local_ratio).add_(global_reward)
        else:
            out.copy_(global_reward)

    def finished(self, world: World) -> Tensor:
        return (_landmark_distance(world) < CAPTURE_RADIUS).all(0)

    def labels(self) -> tuple[LabelSpec, ...]:
        return (LabelSpec("landmarks_covered"), LabelSpec("touching", "agent", ("apart", "touching")))

    def read_labels(self, world: World) -> dict[str, Tensor]:
        covered = (_landmark_distance(world) < CAPTURE_RADIUS).sum(0).float()
        return {"landmarks_covered": covered, "touching": world.touching_agents().any(1).t().long()}

    def _silent_messages(self, layout: Layout, agent: int) -> list[Feature]:
        """Zeros: mpe2's observations contain the words of the other agents, although all agents are silent."""
        names = [name for _, name in self.others(agent)]
        if self.n_near_agents is not None:
            names = [f"nearest_agent_{slot}" for slot in range(self.n_near_agents)]
        return [(f"{name}_message_{word}", layout.constant(0.0)) for name in names for word in range(self.n_words)]


def _landmark_distance(world: World) -> Tensor:
    """`[landmark, env]`: the distance of each landmark to its nearest agent."""
    return world.landmark_distance.amin(0)

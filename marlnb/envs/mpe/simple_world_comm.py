"""Adversaries chase good agents that hide in forests and seek food; one adversary, the leader, sees all and talks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import AXES, Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario, block
from marlnb.envs.mpe.simple_tag import caught, chaser_names, out_of_bounds
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

LEADER = 0


@ENVIRONMENTS.register("mpe/simple_world_comm")
@dataclass(frozen=True)
class SimpleWorldCommConfig(MPEConfig):
    """Tag with food worth 2, forests that hide the agents in them, and a leader whose words the adversaries hear."""

    mpe2_module: ClassVar[str] = "mpe2.simple_world_comm_v3"

    num_good: int = option(2, help="number of good agents, the prey", ge=1, le=256)
    num_adversaries: int = option(4, help="number of adversaries, including the leader", ge=1, le=256)
    num_obstacles: int = option(1, help="number of obstacles", ge=0, le=256)
    num_food: int = option(2, help="number of food places", ge=1, le=256)
    num_forests: int = option(2, help="number of forests", ge=0, le=256)

    def scenario(self) -> Scenario:
        return SimpleWorldComm(self)


class SimpleWorldComm(Scenario):
    rewards_groups_differently = True
    n_words = 4
    landmark_range = 0.9

    def __init__(self, config: SimpleWorldCommConfig) -> None:
        self.n_adversaries, self.n_forests = config.num_adversaries, config.num_forests
        leader = Body("leadadversary_0", 0.075, silent=False, accel=3.0, max_speed=1.0)
        followers = [Body(name, 0.075, accel=3.0, max_speed=1.0) for name in chaser_names(config.num_adversaries - 1)]
        good = [Body(f"agent_{i}", 0.045, accel=4.0, max_speed=1.3) for i in range(config.num_good)]
        kinds = [("landmark", config.num_obstacles, 0.2), ("food", config.num_food, 0.03)]
        landmarks = [
            Body(f"{kind}_{i}", size, collide=kind == "landmark", movable=False)
            for kind, n, size in [*kinds, ("forest", config.num_forests, 0.3)]
            for i in range(n)
        ]
        super().__init__([leader, *followers, *good], landmarks)
        first_food = len(self.agents) + config.num_obstacles
        self.food = slice(first_food, first_food + config.num_food)
        self.forests = slice(self.food.stop, self.food.stop + config.num_forests)
        self.good = slice(self.n_adversaries, len(self.agents))
        self.n_redrawn = config.num_food + config.num_forests

    def blocks(self) -> dict[str, tuple[int, ...]]:
        n = len(self.agents)
        return {"seen_delta": (2, n, n), "seen_velocity": (2, n, n), "in_forest": (n, self.n_forests)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        others = self.others(agent)
        delta = [(f"{o}_d{a}", layout.row("seen_delta", k, agent, i)) for i, o in others for k, a in enumerate(AXES)]
        velocity = [
            (f"{name}_velocity_{axis}", layout.row("seen_velocity", k, agent, other))
            for other, name in others
            if other >= self.n_adversaries
            for k, axis in enumerate(AXES)
        ]
        inside = block(layout, "in_forest", [f"in_forest_{i}" for i in range(self.n_forests)], agent)
        tail = inside + velocity
        if agent < self.n_adversaries:
            tail = velocity + inside + self.message_features(layout, LEADER)
        return self.self_features(layout, agent) + self.landmark_features(layout, agent) + delta + tail

    def refresh(self, world: World) -> None:
        inside = world.touching(slice(None), self.forests)
        world["in_forest"].copy_(inside).mul_(2).sub_(1)
        together = (inside[:, None] & inside[None]).any(2)
        open_air = ~inside.any(1)
        visible = together | (open_air[:, None] & open_air[None])
        visible[LEADER] = True
        world["seen_delta"].copy_(world.delta[:, :, : world.n_agents] * visible)
        world["seen_velocity"].copy_(world.velocity[:, None] * visible)

    def reward(self, world: World, out: Tensor) -> None:
        contacts = caught(world, self.n_adversaries).sum(0)
        nearest_prey = world.distance[: self.n_adversaries, self.good].amin(1)
        out[: self.n_adversaries] = 5 * contacts.sum(0) - 0.1 * nearest_prey
        eaten = world.touching(self.good, self.food).sum(1)
        nearest_food = world.distance[self.good, self.food].amin(1)
        out[self.good] = 2 * eaten - 5 * contacts - 2 * out_of_bounds(world, self.good) - 0.05 * nearest_food

    def labels(self) -> tuple[LabelSpec, ...]:
        hidden = tuple(LabelSpec(f"{group}_in_forest", group, ("open", "forest")) for group in self.groups)
        return (LabelSpec("agent_caught", "agent", ("free", "caught")), *hidden)

    def read_labels(self, world: World) -> dict[str, Tensor]:
        inside = world.touching(slice(None), self.forests).any(1).t().long()
        labels = {"agent_caught": caught(world, self.n_adversaries).any(0).t().long()}
        first = 0
        for group, members in self.groups.items():
            labels[f"{group}_in_forest"] = inside[:, first : first + len(members)]
            first += len(members)
        return labels

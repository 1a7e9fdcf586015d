"""Partial views: agents that observe only the nearest landmarks or agents, nearest first, padded with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import option
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import AXES, Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

_FAR = 1e30


@dataclass(frozen=True)
class PartialViewConfig(MPEConfig):
    """Options of scenarios whose agents can have a partial view."""

    num_agent_neighbors: int | None = option(
        None, help="number of nearest agents that are observed; none: all, in the order of their numbers", ge=1, le=512
    )
    num_landmark_neighbors: int | None = option(
        None,
        help="number of nearest landmarks that are observed; none: all, in the order of their numbers",
        ge=1,
        le=256,
    )


class PartialView(Scenario):
    """Observes only the nearest landmarks and other agents if the options limit their number."""

    velocity_seen_of: slice | None = None

    def __init__(self, agents: Sequence[Body], landmarks: Sequence[Body], config: PartialViewConfig) -> None:
        super().__init__(agents, landmarks)
        self.n_near_agents = config.num_agent_neighbors
        self.n_near_landmarks = config.num_landmark_neighbors

    def blocks(self) -> dict[str, tuple[int, ...]]:
        blocks: dict[str, tuple[int, ...]] = {}
        if self.n_near_landmarks is not None:
            blocks["near_landmark"] = (2, len(self.agents), self.n_near_landmarks)
        if self.n_near_agents is not None:
            blocks["near_agent"] = blocks["near_velocity"] = (2, len(self.agents), self.n_near_agents)
        return blocks

    def landmark_features(self, layout: Layout, agent: int) -> list[Feature]:
        if self.n_near_landmarks is None:
            return super().landmark_features(layout, agent)
        return _near(layout, "near_landmark", agent, self.n_near_landmarks, "nearest_landmark_{}_d")

    def other_features(self, layout: Layout, agent: int) -> list[Feature]:
        if self.n_near_agents is None:
            return super().other_features(layout, agent)
        return _near(layout, "near_agent", agent, self.n_near_agents, "nearest_agent_{}_d")

    def velocity_features(self, layout: Layout, agent: int) -> list[Feature]:
        """Other agents' velocities: of those in `sees_velocity_of`, or of the nearest, zero where not in it."""
        if self.n_near_agents is not None:
            return _near(layout, "near_velocity", agent, self.n_near_agents, "nearest_agent_{}_velocity_")
        visible = range(len(self.agents))[self.velocity_seen_of or slice(None)]
        return [
            (f"{name}_velocity_{axis}", layout.row("velocity", k, other))
            for other, name in self.others(agent)
            if other in visible
            for k, axis in enumerate(AXES)
        ]

    def refresh(self, world: World) -> None:
        n = world.n_agents
        if self.n_near_landmarks is not None:
            order = world.landmark_distance.argsort(1)[:, : self.n_near_landmarks]
            _pick(world.landmark_delta, order, world["near_landmark"])
        if self.n_near_agents is not None:
            others = world.agent_distance + _FAR * world.bodies.self_mask[:, :n]
            order = others.argsort(1)[:, : min(self.n_near_agents, n - 1)]
            _pick(world.delta[:, :, :n], order, world["near_agent"])
            if self.velocity_seen_of is not None:
                visible = world.velocity.new_zeros(world.velocity.shape)
                visible[:, self.velocity_seen_of] = world.velocity[:, self.velocity_seen_of]
                _pick(visible[:, None].expand(-1, n, -1, -1), order, world["near_velocity"])


def _near(layout: Layout, name: str, agent: int, n: int, feature: str) -> list[Feature]:
    return [
        (feature.format(slot) + axis, layout.row(name, k, agent, slot))
        for slot in range(n)
        for k, axis in enumerate(AXES)
    ]


def _pick(values: Tensor, order: Tensor, out: Tensor) -> None:
    """Copies `values` `[axis, agent, entity, env]` of entities `order` `[agent, slot, env]`; other slots stay zero."""
    out[:, :, : order.shape[1]] = values.gather(2, order[None].expand(2, -1, -1, -1))

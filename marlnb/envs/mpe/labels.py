"""Concepts that every MPE scenario can tell, to be decoded from hidden units: where agents are and what is nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from marlnb.envs.mpe.layout import AXES
from marlnb.envs.mpe.scenario import Scenario
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from marlnb.envs.mpe.world import World


def label_specs(scenario: Scenario) -> tuple[LabelSpec, ...]:
    """Per group that moves: position, velocity, nearest landmark and its distance; then the scenario's own."""
    specs = []
    for group, _ in _moving(scenario):
        specs += [LabelSpec(f"{group}_{what}_{axis}", group) for what in ("position", "velocity") for axis in AXES]
        if scenario.landmarks:
            names = tuple(landmark.name for landmark in scenario.landmarks)
            specs += [
                LabelSpec(f"{group}_nearest_landmark", group, names),
                LabelSpec(f"{group}_nearest_distance", group),
            ]
    return (*specs, *scenario.labels())


def read_labels(scenario: Scenario, world: World) -> dict[str, Tensor]:
    """Values of `label_specs`, `[env, agent]` each, `[env]` where the scenario says so; copies."""
    found = {}
    for group, agents in _moving(scenario):
        for k, axis in enumerate(AXES):
            found[f"{group}_position_{axis}"] = world.position[k, agents].t()
            found[f"{group}_velocity_{axis}"] = world.velocity[k, agents].t()
        if scenario.landmarks:
            nearest = world.distance[agents, world.n_agents :].min(1)
            found[f"{group}_nearest_landmark"] = nearest.indices.t()
            found[f"{group}_nearest_distance"] = nearest.values.t()
    found |= scenario.read_labels(world)
    return {name: value.float() if value.is_floating_point() else value.clone() for name, value in found.items()}


def _moving(scenario: Scenario) -> list[tuple[str, slice]]:
    names = [agent.name for agent in scenario.agents]
    found = []
    for group, members in scenario.groups.items():
        first = names.index(members[0])
        if scenario.agents[first].movable:
            found.append((group, slice(first, first + len(members))))
    return found

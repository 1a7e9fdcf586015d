"""Labels of every MPE scenario, to decode from hidden units: positions, the nearest landmark, the last word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from marlnb.envs.mpe.layout import AXES
from marlnb.envs.mpe.scenario import Scenario
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World


def label_specs(scenario: Scenario) -> tuple[LabelSpec, ...]:
    """Per group that moves or speaks: position, velocity, nearest landmark, last word; then the scenario's own."""
    specs = []
    landmarks = tuple(landmark.name for landmark in scenario.landmarks)
    words = ("silent", *(f"say_{word}" for word in range(scenario.n_words)))
    for group, agents in _groups(scenario):
        if scenario.agents[agents.start].movable:
            specs += [LabelSpec(f"{group}_{what}_{axis}", group) for axis in AXES for what in ("position", "velocity")]
            if landmarks:
                specs.append(LabelSpec(f"{group}_nearest_landmark", group, landmarks))
                specs.append(LabelSpec(f"{group}_nearest_distance", group))
        if not scenario.agents[agents.start].silent:
            specs.append(LabelSpec(f"{group}_word", group, words))
    return (*specs, *scenario.labels())


def read_labels(scenario: Scenario, world: World) -> dict[str, Tensor]:
    """Values of `label_specs`: `[env, agent]`, or `[env]` if the label has no group; int64 or float32."""
    values: dict[str, Tensor] = {}
    speaker = 0
    for group, agents in _groups(scenario):
        if scenario.agents[agents.start].movable:
            for k, axis in enumerate(AXES):
                values[f"{group}_position_{axis}"] = world.position[k, agents].t()
                values[f"{group}_velocity_{axis}"] = world.velocity[k, agents].t()
            if world.n_landmarks:
                nearest = world.distance[agents, world.n_agents :].min(1)
                values[f"{group}_nearest_landmark"] = nearest.indices.t()
                values[f"{group}_nearest_distance"] = nearest.values.t()
        if not scenario.agents[agents.start].silent:
            message = world.message[speaker : speaker + agents.stop - agents.start]
            values[f"{group}_word"] = ((message.argmax(1) + 1) * (message != 0).any(1)).t()  # 0: silent
            speaker += agents.stop - agents.start
    values |= scenario.read_labels(world)
    # cloned: the values are views of the world, which the next step overwrites
    return {name: value.float() if value.is_floating_point() else value.clone() for name, value in values.items()}


def _groups(scenario: Scenario) -> Iterator[tuple[str, slice]]:
    first = 0
    for group, members in scenario.groups.items():
        yield group, slice(first, first + len(members))
        first += len(members)

"""One scenario of MPE: its bodies, random choices, observations and rewards; and the options that all scenarios share.

This module does not import torch, so the command's help can list every option quickly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from marlnb.config import EnvConfig, option
from marlnb.envs.mpe.layout import AXES, Body, Feature, Layout
from marlnb.specs import LabelSpec, group_agents

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

_NOT_IN_MPE2 = ("dtype", "state", "curriculum_stage", "goal_steps")


@dataclass(frozen=True)
class MPEOptions(EnvConfig):
    """Options that all scenarios share; an option that mpe2 also has keeps mpe2's name and default."""

    mpe2_module: ClassVar[str]

    max_cycles: int = option(25, help="length of an episode", unit="steps", ge=1, le=1_000_000)
    continuous_actions: bool = option(False, help="forces and words are numbers in 0..1 instead of choices")
    dynamic_rescaling: bool = option(True, help="pictures draw bodies smaller when the view widens")
    dtype: Literal["float32", "float64"] = option(
        "float32",
        help="precision of observations and rewards; the physics is always double",
        choices=("float32", "float64"),
    )
    state: bool = option(False, help="provide the global state: all agents' observations, concatenated")

    @abstractmethod
    def scenario(self) -> Scenario:
        """The scenario with these options."""

    def mpe2_options(self) -> dict[str, Any]:
        """The keyword arguments with which mpe2's environment equals this one."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_IN_MPE2}


class Scenario(ABC):
    """One scenario.

    Attributes:
        agents: in mpe2's order.
        landmarks: in mpe2's order.
        n_words: length of a message, mpe2's `dim_c`.
        choices: the random choices of an episode besides positions: name -> number of possibilities, in mpe2's order.
        landmark_range: half the side of the square in which landmarks start.
        redrawn: the number of landmarks, counted from the last, whose position mpe2 draws twice.
        may_finish: whether an episode can end before `max_cycles`.
        rewards_groups_differently: whether groups of agents earn different rewards.
    """

    n_words: int = 0
    choices: ClassVar[Mapping[str, int]] = {}
    landmark_range: float = 1.0
    n_redrawn: int = 0
    may_finish: bool = False
    rewards_groups_differently: bool = False

    def __init__(self, agents: Sequence[Body], landmarks: Sequence[Body]) -> None:
        self.agents, self.landmarks = tuple(agents), tuple(landmarks)
        self.speakers = [i for i, agent in enumerate(agents) if not agent.silent]
        self.groups = group_agents(tuple(agent.name for agent in agents))

    @abstractmethod
    def features(self, layout: Layout, agent: int) -> list[Feature]:
        """The observation of agent number `agent`, in mpe2's order."""

    @abstractmethod
    def reward(self, world: World, out: Tensor) -> None:
        """Writes every agent's reward into `out` `[agent, env]`."""

    def blocks(self) -> dict[str, tuple[int, ...]]:
        """The scenario's additional blocks of rows: name -> shape."""
        return {}

    def constants(self) -> tuple[float, ...]:
        """Constant values that observations contain."""
        return (0.0,)

    def begin(self, world: World) -> None:
        """Fills the rows that depend only on an episode's random choices, in all envs."""

    def advance(self, world: World) -> None:
        """One step of the physics, after the agents' actions."""
        world.advance()

    def refresh(self, world: World) -> None:
        """Fills the rows that depend on the world's current state."""

    def finished(self, world: World) -> Tensor:
        """`[env]` bool: the episode ends now because of success. Called only if `may_finish`."""
        raise NotImplementedError

    def labels(self) -> tuple[LabelSpec, ...]:
        """The scenario's labels besides those that all scenarios have."""
        return ()

    def read_labels(self, world: World) -> dict[str, Tensor]:
        """Values of `labels()`: `[env]`, or `[env, agent]` for a label of one group."""
        return {}

    def label_specs(self) -> tuple[LabelSpec, ...]:
        """Per group that moves or speaks: position, velocity, nearest landmark, last word; then the scenario's own."""
        specs = []
        landmarks = tuple(landmark.name for landmark in self.landmarks)
        words = ("silent", *(f"say_{word}" for word in range(self.n_words)))
        for group, agents in self._group_slices():
            if self.agents[agents.start].movable:
                specs += [
                    LabelSpec(f"{group}_{what}_{axis}", group) for axis in AXES for what in ("position", "velocity")
                ]
                if landmarks:
                    specs.append(LabelSpec(f"{group}_nearest_landmark", group, landmarks))
                    specs.append(LabelSpec(f"{group}_nearest_distance", group))
            if not self.agents[agents.start].silent:
                specs.append(LabelSpec(f"{group}_word", group, words))
        return (*specs, *self.labels())

    def label_values(self, world: World) -> dict[str, Tensor]:
        """Values of `label_specs`: `[env, agent]`, or `[env]` if the label has no group; int64 or float32."""
        values: dict[str, Tensor] = {}
        speaker = 0
        for group, agents in self._group_slices():
            if self.agents[agents.start].movable:
                for k, axis in enumerate(AXES):
                    values[f"{group}_position_{axis}"] = world.position[k, agents].t()
                    values[f"{group}_velocity_{axis}"] = world.velocity[k, agents].t()
                if world.n_landmarks:
                    nearest = world.distance[agents, world.n_agents :].min(1)
                    values[f"{group}_nearest_landmark"] = nearest.indices.t()
                    values[f"{group}_nearest_distance"] = nearest.values.t()
            if not self.agents[agents.start].silent:
                message = world.message[speaker : speaker + agents.stop - agents.start]
                values[f"{group}_word"] = ((message.argmax(1) + 1) * (message != 0).any(1)).t()  # 0: silent
                speaker += agents.stop - agents.start
        values |= self.read_labels(world)
        # cloned: the values are views of the world, which the next step overwrites
        return {name: value.float() if value.is_floating_point() else value.clone() for name, value in values.items()}

    def _group_slices(self) -> Iterator[tuple[str, slice]]:
        first = 0
        for group, members in self.groups.items():
            yield group, slice(first, first + len(members))
            first += len(members)

    def layout(self) -> Layout:
        n, entities = len(self.agents), len(self.agents) + len(self.landmarks)
        blocks = {
            "position": (2, entities),
            "velocity": (2, n),
            "message": (len(self.speakers), self.n_words),
            "delta": (2, n, entities),
            **self.blocks(),
        }
        return Layout(blocks, self.constants(), {"distance": (n, entities)})

    # The methods below return parts of observations.

    def self_features(self, layout: Layout, agent: int, *, position: bool = True) -> list[Feature]:
        """The agent's own velocity and position."""
        names = ("velocity", "position") if position else ("velocity",)
        return [(f"{name}_{axis}", layout.row(name, k, agent)) for name in names for k, axis in enumerate(AXES)]

    def landmark_features(self, layout: Layout, agent: int) -> list[Feature]:
        """Relative positions of the landmarks."""
        n = len(self.agents)
        return [
            (f"{landmark.name}_d{axis}", layout.row("delta", k, agent, n + number))
            for number, landmark in enumerate(self.landmarks)
            for k, axis in enumerate(AXES)
        ]

    def other_features(self, layout: Layout, agent: int) -> list[Feature]:
        """Relative positions of the other agents."""
        return [
            (f"{name}_d{axis}", layout.row("delta", k, agent, other))
            for other, name in self.others(agent)
            for k, axis in enumerate(AXES)
        ]

    def others(self, agent: int) -> list[tuple[int, str]]:
        """(number, name) of the other agents. Names fit every agent of the group: `other_agent_0`, not `agent_2`."""
        names = [body.name for body in self.agents]
        group = next(group for group in self.groups.values() if names[agent] in group)
        stem = group[0].rpartition("_")[0]
        members = set(group)
        same = [other for other, name in enumerate(names) if name in members and other != agent]
        numbers = {other: number for number, other in enumerate(same)}
        return [
            (other, f"other_{stem}_{numbers[other]}" if other in numbers else name)
            for other, name in enumerate(names)
            if other != agent
        ]

    def message_features(self, layout: Layout, speaker: int) -> list[Feature]:
        """The message of agent number `speaker`."""
        number = self.speakers.index(speaker)
        return [(f"message_{word}", layout.row("message", number, word)) for word in range(self.n_words)]


def goal_labels(scenario: Scenario) -> tuple[LabelSpec, ...]:
    """Labels of a scenario with one adversary and a goal: which landmark it is, and each agent's distance to it."""
    names = tuple(landmark.name for landmark in scenario.landmarks)
    distances = tuple(LabelSpec(f"{group}_goal_distance", group) for group in scenario.groups)
    return (LabelSpec("goal", None, names), *distances)


def read_goal_labels(world: World) -> dict[str, Tensor]:
    """Values of `goal_labels`; the adversary is agent 0."""
    goal = world.choice["goal"]
    distance = world.distance_to(goal).t()
    return {"goal": goal, "adversary_goal_distance": distance[:, :1], "agent_goal_distance": distance[:, 1:]}


def block(layout: Layout, name: str, features: Sequence[str], *at: int) -> list[Feature]:
    """Rows of a block as features: `features` name its last axis, `at` is the index into the axes before it."""
    return [(feature, layout.row(name, *at, k)) for k, feature in enumerate(features)]


def show_at_start(world: World, n_observations: int, *blocks: str) -> None:
    """Counts the observations of an episode in the block `observations`; after the first ones the blocks are zeros."""
    world["observations"].add_(1)
    for name in blocks:
        world[name].mul_(world["observations"] <= n_observations)

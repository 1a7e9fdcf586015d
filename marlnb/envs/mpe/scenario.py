"""What one scenario of MPE states: its bodies, what an episode draws, what agents see and what they earn.

Free of torch until an environment is built, so that the command's help can list every option at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from marlnb.config import EnvConfig, option
from marlnb.envs.mpe.layout import AXES, Body, Feature, Layout
from marlnb.specs import LabelSpec, group_agents

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.env import MPE
    from marlnb.envs.mpe.world import World

_OWN_OPTIONS = ("dtype", "state", "curriculum_stage")


@dataclass(frozen=True)
class MPEConfig(EnvConfig):
    """Options that all scenarios share; every option that mpe2 has too bears mpe2's name and default."""

    mpe2_module: ClassVar[str]

    max_cycles: int = option(25, help="length of an episode", unit="steps", ge=1)
    continuous_actions: bool = option(False, help="forces and words as numbers in 0..1 instead of choices")
    dynamic_rescaling: bool = option(True, help="pictures draw bodies smaller as the view widens")
    dtype: Literal["float32", "float64"] = option(
        "float32",
        help="precision of observations and rewards; the physics is always double",
        choices=("float32", "float64"),
    )
    state: bool = option(False, help="also give the global state: all agents' observations in a row")

    @abstractmethod
    def scenario(self) -> Scenario:
        """The scenario under these options."""

    def build(self, n_envs: int, device: str = "cpu") -> MPE:
        from marlnb.envs.mpe.env import MPE

        return MPE(self, n_envs, device)

    def mpe2_options(self) -> dict[str, Any]:
        """The keyword arguments that make mpe2's environment the same as this one."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _OWN_OPTIONS}


class Scenario(ABC):
    """One scenario; `agents` and `landmarks` in mpe2's order.

    Attributes:
        n_words: length of a message, mpe2's `dim_c`.
        choices: what an episode draws beside positions: name -> number of possibilities, in mpe2's order.
        landmark_range: half the side of the square in which landmarks start.
        redrawn: number of last landmarks whose position mpe2 draws twice.
        may_finish: an episode can end before `max_cycles`.
    """

    n_words: int = 0
    choices: ClassVar[Mapping[str, int]] = {}
    landmark_range: float = 1.0
    redrawn: int = 0
    may_finish: bool = False

    def __init__(self, agents: Sequence[Body], landmarks: Sequence[Body]) -> None:
        self.agents, self.landmarks = tuple(agents), tuple(landmarks)
        self.speakers = [i for i, agent in enumerate(agents) if not agent.silent]
        self.groups = group_agents(tuple(agent.name for agent in agents))

    @abstractmethod
    def features(self, layout: Layout, agent: int) -> list[Feature]:
        """What agent number `agent` observes, in mpe2's order."""

    @abstractmethod
    def reward(self, world: World, out: Tensor) -> None:
        """Writes every agent's reward into `out` `[agent, env]`."""

    def blocks(self) -> dict[str, tuple[int, ...]]:
        """Rows beyond positions and the like, by name, each with its shape."""
        return {}

    def constants(self) -> tuple[float, ...]:
        return (0.0,)

    def begin(self, world: World) -> None:
        """Fills the rows that depend on an episode's choices alone, in all copies."""

    def refresh(self, world: World) -> None:
        """Fills the rows that depend on the world's present state."""

    def finished(self, world: World) -> Tensor:
        """Copies whose episode ends now by success, `[env]` bool; asked only where `may_finish`."""
        raise NotImplementedError

    def labels(self) -> tuple[LabelSpec, ...]:
        """Concepts beyond those that all scenarios tell."""
        return ()

    def read_labels(self, world: World) -> dict[str, Tensor]:
        return {}

    def layout(self) -> Layout:
        n, entities = len(self.agents), len(self.agents) + len(self.landmarks)
        blocks = {
            "position": (2, entities),
            "velocity": (2, n),
            "message": (len(self.speakers), self.n_words),
            "delta": (2, n, entities),
            **self.blocks(),
        }
        return Layout(blocks, self.constants())

    # the parts that observations are put together from

    def own(self, layout: Layout, agent: int, *, position: bool = True) -> list[Feature]:
        moving = [(f"velocity_{axis}", layout.row("velocity", k, agent)) for k, axis in enumerate(AXES)]
        placed = [(f"position_{axis}", layout.row("position", k, agent)) for k, axis in enumerate(AXES)]
        return moving + placed if position else moving

    def to_landmarks(self, layout: Layout, agent: int) -> list[Feature]:
        n = len(self.agents)
        return [
            (f"{landmark.name}_d{axis}", layout.row("delta", k, agent, n + number))
            for number, landmark in enumerate(self.landmarks)
            for k, axis in enumerate(AXES)
        ]

    def to_others(self, layout: Layout, agent: int) -> list[Feature]:
        return [
            (f"{name}_d{axis}", layout.row("delta", k, agent, other))
            for other, name in self.others(agent)
            for k, axis in enumerate(AXES)
        ]

    def others(self, agent: int) -> list[tuple[int, str]]:
        """The other agents with a name that holds for every agent of the group, as `other_agent_0`."""
        names = [body.name for body in self.agents]
        mine = next(members for members in self.groups.values() if names[agent] in members)
        stem = mine[0].rpartition("_")[0]
        same = [other for other, name in enumerate(names) if name in mine and other != agent]
        return [
            (other, f"other_{stem}_{same.index(other)}" if other in same else name)
            for other, name in enumerate(names)
            if other != agent
        ]

    def heard(self, layout: Layout, speaker: int) -> list[Feature]:
        number = self.speakers.index(speaker)
        return [(f"message_{word}", layout.row("message", number, word)) for word in range(self.n_words)]


def block(layout: Layout, name: str, features: Sequence[str], *at: int) -> list[Feature]:
    """A scenario's own rows as features: `features` name the last axis of block `name`, at `at` of those before it."""
    return [(feature, layout.row(name, *at, k)) for k, feature in enumerate(features)]

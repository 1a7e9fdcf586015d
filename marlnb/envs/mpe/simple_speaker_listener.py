"""A speaker observes which landmark is the goal but cannot move; a listener must go there but cannot observe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from marlnb.config import ENVIRONMENTS, option
from marlnb.envs.mpe.config import MPEConfig
from marlnb.envs.mpe.layout import Body, Feature, Layout
from marlnb.envs.mpe.scenario import Scenario, block, show_at_start
from marlnb.specs import LabelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from marlnb.envs.mpe.world import World

COLORS = ((0.65, 0.15, 0.15), (0.15, 0.65, 0.15), (0.15, 0.15, 0.65))
COLOR_NAMES = ("red", "green", "blue")
SPEAKER, LISTENER = 0, 1


@ENVIRONMENTS.register("mpe/simple_speaker_listener")
@dataclass(frozen=True)
class SimpleSpeakerListenerConfig(MPEConfig):
    """Two agents, three landmarks, three words; both earn minus the squared distance from listener to goal."""

    mpe2_module: ClassVar[str] = "mpe2.simple_speaker_listener_v4"

    goal_steps: int | None = option(
        None,
        help="how many observations of an episode, from the first, show the speaker the goal, so that the agents must "
        "remember it; none: all",
        ge=1,
    )

    def scenario(self) -> Scenario:
        return SimpleSpeakerListener() if self.goal_steps is None else BriefGoal(self.goal_steps)


class SimpleSpeakerListener(Scenario):
    n_words = 3
    choices: ClassVar = {"goal": 3}

    def __init__(self) -> None:
        speaker = Body("speaker_0", size=0.075, collide=False, movable=False, silent=False)
        listener = Body("listener_0", size=0.075, collide=False)
        landmarks = [Body(f"landmark_{i}", size=0.04, collide=False, movable=False) for i in range(3)]
        super().__init__([speaker, listener], landmarks)

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {"goal_color": (3,)}

    def features(self, layout: Layout, agent: int) -> list[Feature]:
        if agent == SPEAKER:
            return block(layout, "goal_color", [f"goal_{color}" for color in COLOR_NAMES])
        moving = self.self_features(layout, agent, position=False)
        return moving + self.landmark_features(layout, agent) + self.message_features(layout, SPEAKER)

    def begin(self, world: World) -> None:
        world["goal_color"].copy_(world.tensor(COLORS).t()[:, world.choice["goal"]])

    def reward(self, world: World, out: Tensor) -> None:
        out.copy_(world.distance_of(LISTENER, world.choice["goal"]).square_()).neg_()

    def labels(self) -> tuple[LabelSpec, ...]:
        return (LabelSpec("goal", None, COLOR_NAMES), LabelSpec("goal_distance"))

    def read_labels(self, world: World) -> dict[str, Tensor]:
        goal = world.choice["goal"]
        return {"goal": goal, "goal_distance": world.distance_to(goal)[LISTENER]}


class BriefGoal(SimpleSpeakerListener):
    """The speaker observes the goal at the start of an episode only, and zeros afterwards."""

    def __init__(self, goal_steps: int) -> None:
        super().__init__()
        self.goal_steps = goal_steps

    def blocks(self) -> dict[str, tuple[int, ...]]:
        return {**super().blocks(), "observations": (1,)}

    def begin(self, world: World) -> None:
        super().begin(world)
        world["observations"].zero_()

    def refresh(self, world: World) -> None:
        show_at_start(world, self.goal_steps, "goal_color")

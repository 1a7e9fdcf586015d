"""An environment of one's own: two agents on a line meet in the middle."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marlnb as mnb


class Meeting(ParallelEnv):
    """Each agent sees its own cell and the other's; all get 1 when they meet and -0.1 for every step before."""

    metadata: ClassVar[dict[str, Any]] = {"name": "meeting"}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["walker_0", "walker_1"]
    moves = (-1, 0, 1)  # action index -> step along the line

    def __init__(self, length: int = 5, max_steps: int = 20) -> None:
        self.length, self.max_steps = length, max_steps

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, self.length - 1, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(len(self.moves))

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.n_steps = list(self.possible_agents), 0
        self.cells = {"walker_0": 0, "walker_1": self.length - 1}
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        for agent, action in actions.items():
            self.cells[agent] = int(np.clip(self.cells[agent] + self.moves[int(action)], 0, self.length - 1))
        self.n_steps += 1
        met = self.cells["walker_0"] == self.cells["walker_1"]
        late = self.n_steps >= self.max_steps
        observations, everyone = self._observations(), self.agents
        if met or late:
            self.agents = []
        return (
            observations,
            dict.fromkeys(everyone, 1.0 if met else -0.1),
            dict.fromkeys(everyone, met),
            dict.fromkeys(everyone, late and not met),
            {agent: {} for agent in everyone},
        )

    def _observations(self) -> dict[str, np.ndarray]:
        a, b = self.cells["walker_0"], self.cells["walker_1"]
        return {"walker_0": np.array([a, b], np.float32), "walker_1": np.array([b, a], np.float32)}


@mnb.environment("examples/meeting")
def meeting(length: int = 5, max_steps: int = 20) -> Meeting:
    return Meeting(length, max_steps)

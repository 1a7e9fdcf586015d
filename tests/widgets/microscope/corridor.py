"""A custom environment that supplies the positions of its objects: two walkers and a door."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

LENGTH, STEPS = 10, 6


class Corridor(ParallelEnv[str, np.ndarray, int]):
    metadata: ClassVar[dict[str, Any]] = {"name": "corridor", "render_modes": ["rgb_array"]}
    possible_agents: ClassVar[list[str]] = ["walker_0", "walker_1"]
    described: tuple[str | None, ...] = ("walker_0", "walker_1", "door", None)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (4,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.clock = list(self.possible_agents), 0
        drawn = np.random.default_rng(seed)
        self.at, self.door = drawn.integers(0, LENGTH, 2), int(drawn.integers(0, LENGTH))
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        moves = np.array([2 * actions[agent] - 1 for agent in self.possible_agents])
        self.at = np.clip(self.at + moves, 0, LENGTH - 1)
        self.clock += 1
        near = -np.abs(self.at - self.door).astype(float) / LENGTH
        outcome = (self._observe(), dict(zip(self.agents, near)), self._all(False), self._all(self.clock >= STEPS))
        infos: dict[str, Any] = {agent: {} for agent in self.agents}
        if self.clock >= STEPS:
            self.agents = []
        return (*outcome, infos)

    def render(self) -> np.ndarray:
        image = np.full((10, 10 * LENGTH, 3), 255, np.uint8)
        image[:, 10 * self.door : 10 * self.door + 10] = 0
        return image

    def object_positions(self) -> dict[str, tuple[float, float]]:
        cells = {"walker_0": self.at[0], "walker_1": self.at[1], "door": self.door}
        return {name: ((cell + 0.5) / LENGTH, 0.5) for name, cell in cells.items()}

    def feature_objects(self, agent: str) -> tuple[str | None, ...]:
        return self.described

    def _observe(self) -> dict[str, np.ndarray]:
        seen = np.array([*self.at, self.door, self.clock], np.float32) / LENGTH
        return dict.fromkeys(self.agents, seen)

    def _all(self, value: bool) -> dict[str, bool]:
        return dict.fromkeys(self.agents, value)

"""A small PettingZoo environment of numbered agents that see pictures or sets, for BenchMARL and marlnb alike."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Pictures(ParallelEnv):
    """Three agents; each sees random numbers of one shape, bytes or not, and is paid for its action 0."""

    metadata: ClassVar[dict[str, Any]] = {"name": "pictures_v0", "render_modes": []}

    def __init__(self, shape: tuple[int, ...] = (6, 5, 2), *, as_bytes: bool = False, n_steps: int = 10) -> None:
        self.possible_agents = [f"agent_{k}" for k in range(3)]
        self.agents = list(self.possible_agents)
        self.render_mode = None
        self.n_steps, self.t = n_steps, 0
        kind: Any = np.uint8 if as_bytes else np.float32
        seen = spaces.Box(0, 255 if as_bytes else 1, shape, kind)
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces = {agent: spaces.Discrete(4) for agent in self.possible_agents}
        self._random = np.random.default_rng(0)

    def observation_space(self, agent: str) -> spaces.Box:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        self.t += 1
        over = self.t >= self.n_steps
        result: tuple[Any, ...] = (
            self._seen(),
            {agent: float(actions[agent] == 0) for agent in self.agents},
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, over),
            {agent: {} for agent in self.agents},
        )
        self.agents = [] if over else self.agents
        return result

    def _seen(self) -> dict[str, Any]:
        low, high = (0, 256) if self.observation_spaces["agent_0"].dtype == np.uint8 else (0, 1)
        space = self.observation_spaces["agent_0"]
        return {a: self._random.uniform(low, high, space.shape).astype(space.dtype) for a in self.agents}

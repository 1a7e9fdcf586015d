"""PettingZoo environments with dictionary observations and labels; worker processes import this file."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Rooms(ParallelEnv):
    """Two walkers and a judge for four steps; walker_1 leaves after two. Its numbers follow from step and seed."""

    metadata: ClassVar[dict[str, Any]] = {"name": "rooms"}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["walker_0", "walker_1", "judge_0"]
    label_classes: ClassVar[dict[str, tuple[str, ...]]] = {"goal": ("red", "blue"), "room": ("hall", "attic")}

    def observation_space(self, agent: str) -> spaces.Dict:
        box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        inner = spaces.Dict({"speed": spaces.Box(-np.inf, np.inf, (1,), np.float32), "door": spaces.Discrete(2)})
        return spaces.Dict({"position": box, "me": inner})

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.t, self.seed, self.agents = 0, seed or 0, list(self.possible_agents)
        self.goal = self.seed % 2
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        observations, agents = self._observations(), self.agents
        terminated = {agent: self.t == 4 or (self.t == 2 and agent == "walker_1") for agent in agents}
        self.agents = [agent for agent in agents if not terminated[agent]]
        infos: dict[str, Any] = {agent: {} for agent in agents}
        return observations, dict.fromkeys(agents, 1.0), terminated, dict.fromkeys(agents, False), infos

    def labels(self) -> dict[str, Any]:
        return {
            "goal": self.label_classes["goal"][self.goal],
            "t": self.t,
            "late": self.t >= 2,
            "room": {agent: self.t % 2 for agent in self.agents if agent.startswith("walker")},
            "number": {
                agent: 10.0 * i + self.t for i, agent in enumerate(self.possible_agents) if agent in self.agents
            },
        }

    def _observations(self) -> dict[str, Any]:
        return {
            agent: {
                "position": np.array([self.t, self.seed % 1000], np.float32),
                "me": {"speed": np.array([0.5 * self.t], np.float32), "door": self.goal},
            }
            for agent in self.agents
        }


class Turns(AECEnv):
    """Two players take three turns each and keep count of them."""

    metadata: ClassVar[dict[str, Any]] = {"name": "turns", "is_parallelizable": False}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["player_0", "player_1"]

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 1000, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.agent_selection, self.n_turns = list(self.possible_agents), "player_0", 0
        self.seed = seed or 0
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> np.ndarray:
        return np.array([self.n_turns, self.seed % 1000], np.float32)

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.n_turns += 1
        self.terminations = dict.fromkeys(self.agents, self.n_turns == 6)
        self.agent_selection = self.possible_agents[self.n_turns % 2]

    def labels(self) -> dict[str, Any]:
        return {"n_turns": self.n_turns, "to_move": {agent: agent == self.agent_selection for agent in self.agents}}


class Wrong(Rooms):
    """Labels that break one rule: `what`."""

    def __init__(self, what: str) -> None:
        self.what = what

    def labels(self) -> Any:
        later = self.t > 0
        values: dict[str, Any] = {
            "no dict": 3,
            "a text": {"colour": "red"},
            "an unknown agent": {"near": {"walker_7": 1.0}},
            "no agent": {"near": {}},
            "two of one name": {"walker_near": 1.0, "near": {"walker_0": 1.0, "judge_0": 1.0}},
            "another class": {"goal": "green"},
            "less later": {} if later else {"t": 1.0},
            "an agent less": {"near": {"walker_0": 1.0} if later else {"walker_0": 1.0, "walker_1": 1.0}},
        }
        return values[self.what]

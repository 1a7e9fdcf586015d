"""Small environments whose agents wait, and whose every number is known beforehand; worker processes import this."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


class Relay(AECEnv):
    """Turns go r_0, r_1, r_2, r_0, ...; r_1 dies at the fourth move, which is r_0's; after the seventh time is up.

    At move t (from 1) the mover pays 1 and every other agent that was there is given 10 t + the action. An observation
    is (moves so far, the agent's number, whose turn it is, seed mod 1000).

    Args:
        dead_first: whether the dead are asked for their last step before anyone else moves, as PettingZoo advises.
        mask: "none", or where the mask is, "observation" or "info": action 2 is forbidden at even moves. A waiting
            agent's is all zeros.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "relay"}
    render_mode = None

    def __init__(self, dead_first: bool = True, mask: str = "none") -> None:
        super().__init__()
        self.dead_first, self.mask_in = dead_first, mask
        self.possible_agents = ["r_0", "r_1", "r_2"]
        box = spaces.Box(-np.inf, np.inf, (4,), np.float64)
        both = {"observation": box, "action_mask": spaces.Box(0, 1, (3,), np.int8)}
        self._observation_space = spaces.Dict(both) if mask == "observation" else box

    def observation_space(self, agent: str) -> spaces.Space:
        return self._observation_space

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    def mask(self, agent: str) -> np.ndarray:
        if agent != self.agent_selection:
            return np.zeros(3, np.int8)
        return np.array([1, 1, self.moves % 2 == 0], np.int8)

    def observe(self, agent: str) -> Any:
        seen = np.array([self.moves, int(agent[-1]), int(self.agent_selection[-1]), self.seed_given % 1000], float)
        return {"observation": seen, "action_mask": self.mask(agent)} if self.mask_in == "observation" else seen

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        self.moves, self.seed_given = 0, seed or 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = "r_0"
        self._inform()

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            self._inform()
            return
        self.moves += 1
        self._cumulative_rewards[mover] = 0.0
        self._clear_rewards()
        living = [agent for agent in self.agents if not self.terminations[agent]]
        for agent in living:
            self.rewards[agent] = -1.0 if agent == mover else 10.0 * self.moves + action
        self._accumulate_rewards()
        self.agent_selection = living[(living.index(mover) + 1) % len(living)]
        if self.moves == 4:
            self.terminations["r_1"], self.agent_selection = True, "r_2"
        if self.moves == 7:
            self.truncations = {agent: not self.terminations[agent] for agent in self.agents}
        if self.dead_first:
            self._deads_step_first()
        self._inform()

    def _inform(self) -> None:
        info = {"action_mask": self.mask(self.agent_selection)} if self.mask_in == "info" and self.agents else {}
        self.infos = {agent: info if agent == self.agent_selection else {} for agent in self.agents}


class Rates(ParallelEnv):
    """quick acts at every step, slow at every third; after five steps time is up, while slow waits.

    A missing agent is left out of the observations and, where `leaves` is set, of `agents`. A step t (from 1) is worth
    t to quick and 10 t to slow, whether it acts or not. `received` is what the environment was last given.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "rates"}
    render_mode = None

    def __init__(self, leaves: bool = False) -> None:
        self.leaves = leaves
        self.possible_agents = ["quick", "slow"]
        self.received: dict[str, Any] = {}

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def _seen(self) -> dict[str, np.ndarray]:
        present = ["quick", "slow"] if self.t % 3 == 0 else ["quick"]
        if self.leaves:
            self.agents = present
        return {agent: np.array([self.t, self.seed_given % 1000], np.float32) for agent in present}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.t, self.seed_given = 0, seed or 0
        self.agents = list(self.possible_agents)
        seen = self._seen()
        return seen, {agent: {} for agent in seen}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t, self.received = self.t + 1, actions
        seen = self._seen()
        rewards = {"quick": float(self.t), "slow": 10.0 * self.t}
        over = self.t == 5
        if over:
            self.agents = []
        return seen, rewards, dict.fromkeys(seen, False), dict.fromkeys(seen, over), {agent: {} for agent in seen}


class Stuck(Relay):
    """The player whose turn it is may choose nothing."""

    def mask(self, agent: str) -> np.ndarray:
        return np.zeros(3, np.int8)


class Undead(Relay):
    """Never takes the dead away."""

    def _was_dead_step(self, action: Any) -> None:
        pass


class OnlyAtEvenTimes(ParallelEnv):
    """One agent, whose mask allows nothing at odd times. It earns 10 at even times and 1 at odd ones."""

    metadata: ClassVar[dict[str, Any]] = {"name": "even"}
    possible_agents: ClassVar[list[str]] = ["a_0"]

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Dict({"observation": spaces.Box(0, 9, (1,), np.float32), "action_mask": spaces.MultiBinary(2)})

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def _see(self) -> dict[str, Any]:
        mask = np.full(2, self.t % 2 == 0, np.int8)
        return {"a_0": {"observation": np.full(1, self.t, np.float32), "action_mask": mask}}

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.t = ["a_0"], 0
        return self._see(), {"a_0": {}}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.t += 1
        return self._see(), {"a_0": 10.0 if self.t % 2 else 1.0}, {"a_0": False}, {"a_0": False}, {"a_0": {}}

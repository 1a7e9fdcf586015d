"""Environments whose agents wait for one another, stepped as if all acted: those who wait are asked for nothing.

Each looks like a ParallelEnv whose `acting` names those who act next. `agents` are all that live, waiting or not, and
all of them are observed: a centralised critic, and whoever ends while waiting, need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from marlnb.envs.workers.api import StepResult, check_reset, check_step
from marlnb.envs.workers.fast_parallel import unwrap_checks
from marlnb.errors import EnvError


class TurnBasedEnv(ABC):
    """What both kinds share: whatever else is asked for comes from the environment within."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents: list[str] = list(env.possible_agents)
        self.agents: list[str] = []
        self.acting: Collection[str] = ()
        self.unwrapped = getattr(env, "unwrapped", env)

    @abstractmethod
    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """As ParallelEnv's: observations and infos by agent."""

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> StepResult:
        """As ParallelEnv's; of the actions, those of the agents that are acting are taken."""

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space(agent)

    def action_space(self, agent: str) -> Any:
        return self.env.action_space(agent)

    def state(self) -> Any:
        return self.env.state()

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class AECAsParallel(TurnBasedEnv):
    """An AECEnv: a step is one agent's turn; its rewards are those that the environment gave in that turn.

    The steps in which PettingZoo takes dead agents away, without an action, are made at once.

    Args:
        stock: go through all of its wrappers.
    """

    def __init__(self, env: Any, stock: bool) -> None:
        super().__init__(env if stock else unwrap_checks(env))
        # where rewards and the like are: that wrapper only acts at a step
        self._within = self.env if stock else unwrap_checks(self.env, also=("TerminateIllegalWrapper",))

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.env.reset(seed=seed)
        self._take_away_dead()
        return self._seen(), dict(self._within.infos)

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        env, was = self._within, self.agents
        (mover,) = self.acting
        self.env.step(actions[mover])
        given, terminations, truncations = env.rewards, env.terminations, env.truncations
        rewards = {agent: given.get(agent, 0.0) for agent in was}
        terminated = {agent: True for agent in was if terminations.get(agent)}
        truncated = {agent: True for agent in was if truncations.get(agent)}
        if not (terminated or truncated or env.agents != was):
            self.acting = (env.agent_selection,)
            return self._seen(), rewards, terminated, truncated, env.infos
        present = set(env.agents)
        last = {agent: self.env.observe(agent) for agent in was if agent in present and agent in terminated | truncated}
        infos = dict(env.infos)
        self._take_away_dead()
        return last | self._seen(), rewards, terminated, truncated, infos | dict(env.infos)

    def _seen(self) -> dict[str, Any]:
        observe = self.env.observe
        return {agent: observe(agent) for agent in self.agents}

    def _take_away_dead(self) -> None:
        """On to the next turn of someone who lives.

        Raises:
            EnvError: the environment asks a dead agent again, or one that is not there.
        """
        env = self._within
        for _ in range(len(self.possible_agents) + 1):
            selected, agents = env.agent_selection, env.agents
            if not agents or not self._is_dead(selected):
                break
            self.env.step(None)
        else:
            raise EnvError(f"agent {selected!r} is dead and is asked again and again")
        self.agents = [agent for agent in env.agents if not self._is_dead(agent)]
        self.acting = (env.agent_selection,) if self.agents else ()
        if self.agents and env.agent_selection not in self.agents:
            raise EnvError(f"it is the turn of {env.agent_selection!r}, which is not among the agents {self.agents}")

    def _is_dead(self, agent: str) -> bool:
        return bool(self._within.terminations.get(agent) or self._within.truncations.get(agent))


class AsynchronousParallel(TurnBasedEnv):
    """A ParallelEnv some of whose agents are missing from some steps: they wait, and act again when they are seen.

    An agent acts that is in the environment's `agents` and was given an observation. One that is missing is shown what
    it saw last. It ends when it is said to be terminated or truncated, or when no agent is left: then truncated if all
    that was said at that step was truncation, else terminated.
    """

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = check_reset(self.env.reset(seed=seed))
        self._last: dict[str, Any] = dict(observations)
        self.agents = [agent for agent in self.possible_agents if agent in observations]
        self._find_acting(observations)
        return dict(observations), dict(infos)

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        was = self.agents
        given = {agent: actions[agent] for agent in self.acting}
        observations, rewards, terminations, truncations, infos = check_step(self.env.step(given))
        self._last.update(observations)
        terminated = {agent: True for agent in was if terminations.get(agent)}
        truncated = {agent: True for agent in was if truncations.get(agent)}
        if not self.env.agents and truncated and not terminated:
            truncated = dict.fromkeys(was, True)
        left = {*was, *observations} - set(terminated) - set(truncated)
        self.agents = [agent for agent in self.possible_agents if agent in left] if self.env.agents else []
        self._find_acting(observations)
        seen = {agent: self._last[agent] for agent in {*was, *self.agents}}
        return seen, {agent: rewards.get(agent, 0.0) for agent in was}, terminated, truncated, infos

    def _find_acting(self, observations: Mapping[str, Any]) -> None:
        present = set(self.env.agents)
        self.acting = {agent for agent in self.agents if agent in present and agent in observations}

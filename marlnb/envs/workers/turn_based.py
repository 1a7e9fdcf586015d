"""Turn-based stepping: environments whose agents wait for one another, behind the interface of a ParallelEnv.

`acting` names the agents that act next. `agents` are all living agents, waiting or not. All of them are observed: a
centralised critic needs every observation, and an agent may end while it waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from typing import Any, ClassVar

from marlnb.envs.workers.api import StepResult, check_reset, check_step
from marlnb.envs.workers.fast_parallel import unwrap_checks
from marlnb.errors import EnvError


class TurnBasedEnv(ABC):
    """The base of both kinds; spaces, state and rendering come from the wrapped environment.

    Attributes:
        mask_may_forbid_all: whether an agent of `acting` waits if its mask allows no choice; else that is an error.
    """

    mask_may_forbid_all: ClassVar[bool] = False

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents: list[str] = list(env.possible_agents)
        self.agents: list[str] = []
        self.acting: Collection[str] = ()
        self.unwrapped = getattr(env, "unwrapped", env)

    @abstractmethod
    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """As ParallelEnv.reset: observations and infos by agent."""

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> StepResult:
        """As ParallelEnv.step; uses only the actions of agents that are acting."""

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
    """An AECEnv: one step is one agent's turn, with the rewards that the environment gave in that turn.

    PettingZoo removes dead agents in extra steps without an action; these are made immediately.

    Args:
        env: the AECEnv.
        stock: step through all of its wrappers.
    """

    def __init__(self, env: Any, stock: bool) -> None:
        super().__init__(env if stock else unwrap_checks(env))
        # holds rewards, terminations and infos; this further wrapper matters only in `step`
        self._inner = self.env if stock else unwrap_checks(self.env, also=("TerminateIllegalWrapper",))

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.env.reset(seed=seed)
        self._remove_dead()
        return self._observe(self.agents), dict(self._inner.infos)

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        env, was_living = self._inner, self.agents
        (agent_to_act,) = self.acting
        self.env.step(actions[agent_to_act])
        terminations, truncations = env.terminations, env.truncations
        rewards = {agent: env.rewards.get(agent, 0.0) for agent in was_living}
        terminated = {agent: True for agent in was_living if terminations.get(agent)}
        truncated = {agent: True for agent in was_living if truncations.get(agent)}
        if not (terminated or truncated or env.agents != was_living):
            self.acting = (env.agent_selection,)
            return self._observe(self.agents), rewards, terminated, truncated, env.infos
        present = set(env.agents)
        ended = terminated | truncated
        # observed before the dead agents are removed: afterwards PettingZoo has no observation of them
        final = self._observe(agent for agent in was_living if agent in present and agent in ended)
        infos = dict(env.infos)
        self._remove_dead()
        return final | self._observe(self.agents), rewards, terminated, truncated, infos | dict(env.infos)

    def _observe(self, agents: Iterable[str]) -> dict[str, Any]:
        return {agent: deepcopy(self.env.observe(agent)) for agent in agents}  # it may fill the same array for each

    def _remove_dead(self) -> None:
        """Advances to the next turn of a living agent.

        Raises:
            EnvError: the environment keeps selecting a dead agent, or selects one that is not among its agents.
        """
        env = self._inner
        for _ in range(len(self.possible_agents) + 1):
            selected, agents = env.agent_selection, env.agents
            if not agents or not self._is_dead(selected):
                break
            self.env.step(None)
        else:
            raise EnvError(f"agent {selected!r} is dead, but the environment keeps selecting it")
        self.agents = [agent for agent in env.agents if not self._is_dead(agent)]
        self.acting = (env.agent_selection,) if self.agents else ()
        if self.agents and env.agent_selection not in self.agents:
            raise EnvError(
                f"agent_selection is {env.agent_selection!r}, which is not among the living agents {self.agents}"
            )

    def _is_dead(self, agent: str) -> bool:
        return bool(self._inner.terminations.get(agent) or self._inner.truncations.get(agent))


class AsynchronousParallel(TurnBasedEnv):
    """A ParallelEnv whose agents may be missing from some steps: they wait until they are observed again.

    An agent acts if it is in the environment's `agents` and has an observation, unless its mask allows no choice. A
    missing agent keeps its last observation. An agent ends when it is reported as terminated or truncated, or when no
    agent is left; in that case it is truncated if that step reported only truncations, else terminated.
    """

    mask_may_forbid_all = True

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = check_reset(self.env.reset(seed=seed))
        self._last: dict[str, Any] = deepcopy(dict(observations))
        self.agents = [agent for agent in self.possible_agents if agent in observations]
        self._find_acting(observations)
        return dict(observations), dict(infos)

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        was_living = self.agents
        acted = {agent: actions[agent] for agent in self.acting}
        observations, rewards, terminations, truncations, infos = check_step(self.env.step(acted))
        self._last.update(deepcopy(dict(observations)))  # the environment may write to what it returned
        terminated = {agent: True for agent in was_living if terminations.get(agent)}
        truncated = {agent: True for agent in was_living if truncations.get(agent)}
        if not self.env.agents and truncated and not terminated:
            truncated = dict.fromkeys(was_living, True)
        ended = {agent for flags in (terminations, truncations) for agent, flag in flags.items() if flag}
        left = {*was_living, *(observations.keys() & set(self.env.agents))} - ended
        self.agents = [agent for agent in self.possible_agents if agent in left] if self.env.agents else []
        self._find_acting(observations)
        current = {agent: self._last[agent] for agent in {*was_living, *self.agents}}
        return current, {agent: rewards.get(agent, 0.0) for agent in was_living}, terminated, truncated, infos

    def _find_acting(self, observations: Mapping[str, Any]) -> None:
        present = set(self.env.agents)
        self.acting = {agent for agent in self.agents if agent in present and agent in observations}

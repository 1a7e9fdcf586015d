"""Shorter ways through known turn-based environments, equal to their `parallel_env` number for number.

PettingZoo steps these through `aec_to_parallel_wrapper`, which has every agent observed before its turn and looks
everything up through layers of wrappers. Here the environment within is stepped itself, and where only the last agent's
turn computes anything, the others' are reduced to noting their actions. What the wrappers check, the action's bounds
and the order of calls, has been checked already. Any other environment is stepped as it comes.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from marlnb.envs.workers.api import StepResult

_KNOWN = ("pettingzoo.sisl.", "pettingzoo.butterfly.", "mpe2.")
_CHECKS = ("OrderEnforcingWrapper", "ClipOutOfBoundsWrapper", "AssertOutOfBoundsWrapper")


def fast_parallel(env: Any) -> Any:
    """The environment with a shorter `step`, or itself where none is known."""
    conversions = sys.modules.get("pettingzoo.utils.conversions")
    if conversions is None or type(env) is not conversions.aec_to_parallel_wrapper:
        return env
    within = unwrap_checks(env.aec_env)
    if not type(within).__module__.startswith(_KNOWN) or getattr(within, "render_mode", None) == "human":
        return env
    for cycle in (NotedActions, MultiWalker, Pistonball, CooperativePong, KnightsArchersZombies):
        if cycle.fits(within):
            return cycle(env, within)
    return FastParallel(env, within)


def unwrap_checks(env: Any, also: tuple[str, ...] = ()) -> Any:
    """An AECEnv without those of PettingZoo's outer wrappers that check what has been checked already, and `also`."""
    while type(env).__name__ in _CHECKS + also and type(env).__module__.startswith("pettingzoo.utils.wrappers"):
        env = env.env
    return env


class FastParallel:
    """Steps every agent in turn; `within` is the environment without its wrappers."""

    def __init__(self, env: Any, within: Any) -> None:
        self._env, self._within = env, within
        self.possible_agents = within.possible_agents
        self.agents: list[str] = []
        self.unwrapped = within

    @classmethod
    def fits(cls, within: Any) -> bool:
        return True

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = self._env.reset(seed=seed)
        self.agents = self._within.agents
        return observations, infos

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        """As ParallelEnv's."""
        within = self._within
        rewards = self._turns(actions)
        terminations, truncations = dict(within.terminations), dict(within.truncations)
        infos = dict(within.infos)
        observations = self._observations()
        while within.agents and (
            within.terminations[within.agent_selection] or within.truncations[within.agent_selection]
        ):
            within.step(None)
        self.agents = within.agents
        return observations, rewards, terminations, truncations, infos

    def state(self) -> np.ndarray:
        return self._within.state()  # type: ignore[no-any-return]

    def action_space(self, agent: str) -> Any:
        return self._within.action_space(agent)

    def observation_space(self, agent: str) -> Any:
        return self._within.observation_space(agent)

    def _turns(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        """Everybody's turn; the sum of the rewards that each was given in it."""
        within, rewards = self._within, defaultdict[str, Any](int)
        for agent in within.agents:
            if agent != within.agent_selection:
                raise AssertionError(f"expected {agent}'s turn, got {within.agent_selection}'s")
            within.step(actions[agent])
            for other in within.agents:
                rewards[other] += within.rewards[other]
        return rewards

    def _observations(self) -> dict[str, Any]:
        within = self._within
        return {agent: within.observe(agent) for agent in within.agents}


class _LastTurn(FastParallel, ABC):
    """An environment in which all but the last turn of a cycle only note an action."""

    def _turns(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        within, selector = self._within, self._within._agent_selector
        agents = within.agents
        if agents != selector.agent_order or within.agent_selection != agents[0]:
            return super()._turns(actions)
        for agent in agents[:-1]:
            self._note(agent, actions[agent])
        selector._current_agent, selector.selected_agent = 0, agents[-1]
        within.agent_selection = agents[-1]
        within.step(actions[agents[-1]])
        return {agent: within.rewards[agent] for agent in within.agents}

    @abstractmethod
    def _note(self, agent: str, action: Any) -> None:
        """Keeps the action until the last turn."""


class NotedActions(_LastTurn):
    """mpe2's scenarios."""

    @classmethod
    def fits(cls, within: Any) -> bool:
        module = sys.modules.get("mpe2._mpe_utils.simple_env")
        return module is not None and type(within).step is module.SimpleEnv.step

    def _note(self, agent: str, action: Any) -> None:
        self._within.current_actions[self._within._index_map[agent]] = action


class MultiWalker(_LastTurn):
    """Multiwalker: a turn sets one walker's motors, the last one moves the world."""

    @classmethod
    def fits(cls, within: Any) -> bool:
        return type(within).__module__ == "pettingzoo.sisl.multiwalker.multiwalker"

    def _note(self, agent: str, action: Any) -> None:
        within = self._within
        within.env.step(np.asarray(action, dtype=np.float32), within.agent_name_mapping[agent], False)
        within.steps += 1


class Pistonball(FastParallel):
    """Pistonball: every agent sees a window of one screen, which is read once."""

    @classmethod
    def fits(cls, within: Any) -> bool:
        return type(within).__module__ == "pettingzoo.butterfly.pistonball.pistonball"

    def _observations(self) -> dict[str, Any]:
        within = self._within
        wall, width = within.wall_width, within.piston_width
        rows = slice(wall, within.screen_height - wall - within.piston_body_height)
        screen = _pixels(within.screen)
        seen = {}
        for agent in within.agents:
            left = wall + width * (within.agent_name_mapping[agent] - 1)
            seen[agent] = screen[rows, left : left + 3 * width]
        return seen


class CooperativePong(FastParallel):
    """Cooperative pong: both agents see one screen, which is read once."""

    @classmethod
    def fits(cls, within: Any) -> bool:
        return type(within).__module__ == "pettingzoo.butterfly.cooperative_pong.cooperative_pong"

    def _observations(self) -> dict[str, Any]:
        within = self._within
        return dict.fromkeys(within.agents, _pixels(within.env.screen)) if within.agents else {}


class KnightsArchersZombies(FastParallel):
    """Knights, archers and zombies: what is on the field is listed once for all who look at it.

    The one difference from `parallel_env`: there, the time to the next zombie runs on from one episode to the next, so
    that an episode is not determined by its seed; here each starts as the first one does.
    """

    @classmethod
    def fits(cls, within: Any) -> bool:
        return type(within).__module__ == "pettingzoo.butterfly.knights_archers_zombies.knights_archers_zombies"

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self._within.zombie_spawn_interval.reset()
        return super().reset(seed)

    def _observations(self) -> dict[str, Any]:
        within = self._within
        if not within.vector_state:
            return super()._observations()
        field = within.get_vector_state()
        within.get_vector_state = lambda: field
        try:
            return super()._observations()
        finally:
            del within.get_vector_state


def _pixels(surface: Any) -> np.ndarray:
    """A pygame surface `[height, width, 3]` uint8; a copy, since a view would lock it against drawing."""
    import pygame

    width, height = surface.get_size()
    return np.frombuffer(pygame.image.tobytes(surface, "RGB"), np.uint8).reshape(height, width, 3)

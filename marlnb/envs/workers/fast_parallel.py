"""Faster equivalents of `parallel_env` for known turn-based environments; the numbers are the same.

PettingZoo steps these through `aec_to_parallel_wrapper`, which observes every agent before its turn and looks up
everything through layers of wrappers. Here the inner environment is stepped directly. If only the last agent's turn
computes anything, the other turns only store their actions. The wrappers' checks, of the actions' bounds and the order
of calls, have been made already. Any other environment is stepped through its own `step`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from marlnb.envs.workers.api import StepResult

_KNOWN_PACKAGES = ("pettingzoo.sisl.", "pettingzoo.butterfly.", "mpe2.")
_CHECKING_WRAPPERS = ("OrderEnforcingWrapper", "ClipOutOfBoundsWrapper", "AssertOutOfBoundsWrapper")


def fast_parallel(env: Any) -> Any:
    """The environment with a faster `step`, or `env` itself if none is known."""
    conversions = sys.modules.get("pettingzoo.utils.conversions")
    if conversions is None or type(env) is not conversions.aec_to_parallel_wrapper:
        return env
    inner = unwrap_checks(env.aec_env)
    if not type(inner).__module__.startswith(_KNOWN_PACKAGES) or getattr(inner, "render_mode", None) == "human":
        return env
    for kind in (SimpleEnvScenarios, MultiWalker, Pistonball, CooperativePong, KnightsArchersZombies):
        if kind.fits(inner):
            return kind(env, inner)
    return FastParallel(env, inner)


def unwrap_checks(env: Any, also: tuple[str, ...] = ()) -> Any:
    """An AECEnv without PettingZoo's outer wrappers that only repeat checks, and without the wrappers named `also`."""
    while type(env).__name__ in _CHECKING_WRAPPERS + also and type(env).__module__.startswith(
        "pettingzoo.utils.wrappers"
    ):
        env = env.env
    return env


class FastParallel:
    """Steps every agent in turn.

    Args:
        env: the ParallelEnv.
        inner: the AECEnv in it, without wrappers.
    Attributes:
        module: of the AECEnv that a subclass fits.
    """

    module: ClassVar[str]

    def __init__(self, env: Any, inner: Any) -> None:
        self._env, self._inner = env, inner
        self.possible_agents = inner.possible_agents
        self.agents: list[str] = []
        self.unwrapped = inner

    @classmethod
    def fits(cls, inner: Any) -> bool:
        return type(inner).__module__ == cls.module

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, infos = self._env.reset(seed=seed)
        self.agents = self._inner.agents
        return observations, infos

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        """As ParallelEnv's."""
        inner = self._inner
        rewards = self._turns(actions)
        terminations, truncations = dict(inner.terminations), dict(inner.truncations)
        infos = dict(inner.infos)
        observations = self._observations()
        while inner.agents and (inner.terminations[inner.agent_selection] or inner.truncations[inner.agent_selection]):
            inner.step(None)
        self.agents = inner.agents
        return observations, rewards, terminations, truncations, infos

    def state(self) -> np.ndarray:
        return self._inner.state()  # type: ignore[no-any-return]

    def action_space(self, agent: str) -> Any:
        return self._inner.action_space(agent)

    def observation_space(self, agent: str) -> Any:
        return self._inner.observation_space(agent)

    def _turns(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        """All agents' turns; returns the sum of each agent's rewards over these turns."""
        inner, rewards = self._inner, defaultdict[str, Any](int)
        for agent in inner.agents:
            if agent != inner.agent_selection:
                raise AssertionError(f"expected {agent}'s turn, got {inner.agent_selection}'s")
            inner.step(actions[agent])
            for other in inner.agents:
                rewards[other] += inner.rewards[other]
        return rewards

    def _observations(self) -> dict[str, Any]:
        inner = self._inner
        return {agent: inner.observe(agent) for agent in inner.agents}


class _LastTurn(FastParallel, ABC):
    """An environment in which every turn of a cycle except the last only stores an action."""

    def _turns(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        inner, selector = self._inner, self._inner._agent_selector
        agents = inner.agents
        if agents != selector.agent_order or inner.agent_selection != agents[0]:
            return super()._turns(actions)
        for agent in agents[:-1]:
            self._store_action(agent, actions[agent])
        selector._current_agent, selector.selected_agent = 0, agents[-1]
        inner.agent_selection = agents[-1]
        inner.step(actions[agents[-1]])
        return {agent: inner.rewards[agent] for agent in inner.agents}

    @abstractmethod
    def _store_action(self, agent: str, action: Any) -> None:
        """Stores the action until the last turn."""


class SimpleEnvScenarios(_LastTurn):
    """mpe2's scenarios."""

    @classmethod
    def fits(cls, inner: Any) -> bool:
        module = sys.modules.get("mpe2._mpe_utils.simple_env")
        return module is not None and type(inner).step is module.SimpleEnv.step

    def _store_action(self, agent: str, action: Any) -> None:
        self._inner.current_actions[self._inner._index_map[agent]] = action


class MultiWalker(_LastTurn):
    """Multiwalker: each turn sets one walker's motors, and the last one moves the world."""

    module = "pettingzoo.sisl.multiwalker.multiwalker"

    def _store_action(self, agent: str, action: Any) -> None:
        inner = self._inner
        inner.env.step(np.asarray(action, dtype=np.float32), inner.agent_name_mapping[agent], False)
        inner.steps += 1


class Pistonball(FastParallel):
    """Pistonball: every agent observes a window of one screen, which is read once."""

    module = "pettingzoo.butterfly.pistonball.pistonball"

    def _observations(self) -> dict[str, Any]:
        inner = self._inner
        wall, width = inner.wall_width, inner.piston_width
        rows = slice(wall, inner.screen_height - wall - inner.piston_body_height)
        screen = _pixels(inner.screen)
        observations = {}
        for agent in inner.agents:
            left = wall + width * (inner.agent_name_mapping[agent] - 1)
            observations[agent] = screen[rows, left : left + 3 * width]
        return observations


class CooperativePong(FastParallel):
    """Cooperative pong: both agents observe one screen, which is read once."""

    module = "pettingzoo.butterfly.cooperative_pong.cooperative_pong"

    def _observations(self) -> dict[str, Any]:
        inner = self._inner
        return dict.fromkeys(inner.agents, _pixels(inner.env.screen)) if inner.agents else {}


class KnightsArchersZombies(FastParallel):
    """Knights, archers and zombies: the state of the field is computed once for all agents.

    One difference from `parallel_env`: there, the time to the next zombie continues from one episode to the next, so an
    episode is not determined by its seed. Here every episode starts like the first one.
    """

    module = "pettingzoo.butterfly.knights_archers_zombies.knights_archers_zombies"

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self._inner.zombie_spawn_interval.reset()
        return super().reset(seed)

    def _observations(self) -> dict[str, Any]:
        inner = self._inner
        if not inner.vector_state:
            return super()._observations()
        field = inner.get_vector_state()
        inner.get_vector_state = lambda: field
        try:
            return super()._observations()
        finally:
            del inner.get_vector_state


def _pixels(surface: Any) -> np.ndarray:
    """A pygame surface `[height, width, 3]` uint8; a copy, since a view would lock it against drawing."""
    import pygame

    width, height = surface.get_size()
    return np.frombuffer(pygame.image.tobytes(surface, "RGB"), np.uint8).reshape(height, width, 3)

"""Copies of one environment stepped one after the other, each writing its rows of the arrays."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marlnb.envs.workers.api import check_reset, find_violation, check_step
from marlnb.envs.workers.fast_parallel import FastParallel, fast_parallel
from marlnb.envs.workers.memory import Arrays
from marlnb.envs.workers.randomness import GlobalGenerators
from marlnb.envs.workers.rows import GroupRows
from marlnb.envs.workers.source import EnvSource, codecs_of, describe
from marlnb.envs.workers.turn_based import TurnBasedEnv
from marlnb.errors import EnvBuildError, EnvError, MarlnbError, kind_of
from marlnb.specs import SEED_SPAN, EnvSpec


class EnvBatch:
    """Some of the B copies of an environment, those of one process."""

    def __init__(self, source: EnvSource, indices: Sequence[int]) -> None:
        self.source = source
        self.envs = {index: source.make() for index in indices}
        self.copies: list[EnvSlot] = []

    def describe(self) -> EnvSpec:
        try:
            return describe(self.source, next(iter(self.envs.values())))
        except EnvBuildError:
            raise
        except EnvError as error:
            raise EnvBuildError(f"{self.source.name}: {error}") from error
        except Exception as error:
            trace = traceback.format_exc().rstrip()
            raise EnvBuildError(f"{self.source.name} could not tell about its agents\n\n{trace}") from error

    def attach(self, spec: EnvSpec, arrays: Arrays, n_envs: int) -> None:
        """From now on, step into these arrays."""
        self.copies = [EnvSlot(self.source, env, spec, arrays, index, n_envs) for index, env in self.envs.items()]

    def reset(self) -> None:
        for copy in self.copies:
            try:
                copy.reset()
            except Exception as error:
                raise self._failure(copy, error) from error

    def step(self) -> None:
        for copy in self.copies:
            try:
                copy.step()
            except Exception as error:
                raise self._failure(copy, error) from error

    def render(self, index: int) -> np.ndarray:
        """Copy `index` as an image `[height, width, 3]` uint8."""
        image = self.envs[index].render()
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            raise EnvError(f"{self.source.name} has no picture: render() returned {type(image).__name__}")
        return np.ascontiguousarray(image, dtype=np.uint8)

    @property
    def draw_python(self) -> bool:
        """Some copy was seen to draw from Python's own generator."""
        return any(copy.generators.draws_python for copy in self.copies)

    def close(self) -> None:
        for env in self.envs.values():
            if not _quits_pygame(env):
                env.close()

    def _failure(self, copy: EnvSlot, error: Exception) -> MarlnbError:
        """Says in which copy and episode; with a traceback where the environment itself raised."""
        when = "while being reset to" if copy.starts else f"in step {copy.steps} of"
        where = f"{self.source.name}: copy {copy.index} failed {when} the episode with seed {int(copy.episode_seed[0])}"
        kind = kind_of(error)
        if kind is None:
            return EnvError(f"{where}\n\n{traceback.format_exc().rstrip()}")
        return kind(f"{where}: {error}")


def _quits_pygame(env: Any) -> bool:
    """These close by shutting pygame down for all that the process does with it."""
    module = type(getattr(env, "unwrapped", env)).__module__
    return module.startswith(("pettingzoo.", "mpe2."))


class EnvSlot:
    """One environment, the episode it is in, and its rows."""

    def __init__(self, source: EnvSource, env: Any, spec: EnvSpec, arrays: Arrays, index: int, n_envs: int) -> None:
        self.index, self.n_envs, self.max_steps = index, n_envs, source.max_steps
        self.env = env if source.stock else fast_parallel(env)
        self.seed = arrays.seed
        self.done = arrays.done[index : index + 1]
        self.episode_seed = arrays.episode_seed[index : index + 1]
        self.state = None if arrays.state is None else arrays.state[index]
        self.final_state = None if arrays.final_state is None else arrays.final_state[index]
        codecs = codecs_of(env)
        self.groups = [GroupRows(group, arrays.groups[group.name], index, codecs) for group in spec.groups]
        self.spaces = list({id(space): space for space in map(env.action_space, env.possible_agents)}.values())
        self.waits = isinstance(self.env, TurnBasedEnv)
        self.is_known = isinstance(self.env, FastParallel)  # and so draws from no generator but its own
        self.generators = GlobalGenerators()
        self.episode = self.steps = 0
        self.possible = frozenset(env.possible_agents)
        self.living: list[str] = []
        self.flagged = self.starts = False

    def reset(self) -> None:
        """The episode that is number zero under the seed given to all copies."""
        self.episode = 0
        self._clear_flags()
        for group in self.groups:
            group.reward[:] = 0
        self._start()

    def step(self) -> None:
        actions: dict[str, Any] = {}
        for group in self.groups:
            group.read(actions)
        self.steps += 1
        if self.is_known:
            returned = self.env.step(actions)
        else:
            self.generators.enter()
            returned = check_step(self.env.step(actions))
            self.generators.leave()
        lived = self.living
        try:
            self._take(*returned)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if (told := find_violation(returned, lived, self.possible)) is None:
                raise
            raise EnvError(told) from error

    def _take(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, Any],
        terminations: Mapping[str, Any],
        truncations: Mapping[str, Any],
        infos: Mapping[str, Any],
    ) -> None:
        """Writes what a step returned."""
        if self.flagged:
            self._clear_flags()
        if (len(observations) > len(self.living) or len(rewards) > len(self.living)) and not (
            observations.keys() <= self.possible and rewards.keys() <= self.possible
        ):
            raise KeyError("a stranger")  # `breach` says whom
        if self.env.agents == self.living and not (
            True in terminations.values() or True in truncations.values() or self.steps == self.max_steps
        ):
            for group in self.groups:
                group.write(observations, rewards, infos)
            self._take_turns()
            if self.state is not None:
                self.state[...] = self.env.state()
        elif self.is_known or rewards.keys() >= set(self.living):
            self._end(observations, rewards, terminations, truncations, infos)
        else:
            raise KeyError("a reward")  # `breach` says whose

    def _clear_flags(self) -> None:
        self.flagged = self.done[0] = False
        for group in self.groups:
            group.terminated[:] = group.truncated[:] = False

    def _end(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, Any],
        terminations: Mapping[str, Any],
        truncations: Mapping[str, Any],
        infos: Mapping[str, Any],
    ) -> None:
        """A step at which agents appear or end; when none is left, the next episode starts."""
        self.flagged, was = True, set(self.living)
        out_of_time = self.steps == self.max_steps
        terminated = {agent for agent, ended in terminations.items() if ended}
        truncated = {agent for agent, ended in truncations.items() if ended}
        left = set() if out_of_time else set(self.env.agents) - terminated - truncated
        if out_of_time:
            truncated |= was - terminated
        terminated |= was - left - truncated
        for group in self.groups:
            group.end(was, terminated, truncated, observations, rewards)
        if left:
            self._live([agent for agent in self.env.agents if agent in left], observations, infos)
            return
        self.done[0] = True
        if self.final_state is not None:
            self.final_state[...] = self.env.state()
        self.episode += 1
        self._start()

    def _start(self) -> None:
        seed = int(self.seed[0] + self.episode * self.n_envs + self.index) % SEED_SPAN
        self.episode_seed[0] = seed
        self.steps, self.starts = 0, True
        if not self.is_known:
            for space in self.spaces:
                space.seed(seed)
            self.generators.seed(seed)
        observations, infos = check_reset(self.env.reset(seed=seed))
        if not self.is_known:
            self.generators.after_reset()
        agents = list(self.env.agents)
        if not agents:
            raise EnvError("no agent is there after reset")
        if stranger := [agent for agent in (*agents, *observations) if agent not in self.possible]:
            raise EnvError(
                f"{stranger[0]!r} is there after reset and not among possible_agents {sorted(self.possible)}"
            )
        self._live(agents, observations, infos)
        self.starts = False

    def _live(self, agents: list[str], observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        self.living = agents
        living = set(agents)
        for group in self.groups:
            group.live(living, observations, infos)
        self._take_turns()
        if self.state is not None:
            self.state[...] = self.env.state()

    def _take_turns(self) -> None:
        if self.waits:
            for group in self.groups:
                group.take_turns(self.env.acting)

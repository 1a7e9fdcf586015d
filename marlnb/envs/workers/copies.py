"""Copies of one environment stepped one after the other, each writing its rows of the arrays."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marlnb.envs.workers.cycles import Cycle, shortened
from marlnb.envs.workers.memory import Arrays, GroupArrays
from marlnb.envs.workers.randomness import GlobalGenerators
from marlnb.envs.workers.source import Codecs, Source, codecs_of, describe
from marlnb.envs.workers.spaces import MASK, mask_array
from marlnb.errors import EnvError
from marlnb.specs import EnvSpec, GroupSpec

SEED_SPAN = 2**31


class CopyFailure(EnvError):
    """An environment raised; says in which copy and episode, with its traceback."""


class Copies:
    """Some of the B copies of an environment, those of one process."""

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        self.source = source
        self.envs = {index: source.make() for index in indices}
        self.copies: list[Copy] = []

    def describe(self) -> EnvSpec:
        try:
            return describe(self.source, next(iter(self.envs.values())))
        except EnvError:
            raise
        except Exception as error:
            trace = traceback.format_exc().rstrip()
            raise EnvError(f"{self.source.name} could not tell about its agents\n\n{trace}") from error

    def attach(self, spec: EnvSpec, arrays: Arrays, n_envs: int) -> None:
        """From now on, step into these arrays."""
        self.copies = [Copy(self.source, env, spec, arrays, index, n_envs) for index, env in self.envs.items()]

    def reset(self) -> None:
        for copy in self.copies:
            try:
                copy.reset()
            except Exception as error:
                raise self._failure(copy, "while being reset to") from error

    def step(self) -> None:
        for copy in self.copies:
            try:
                copy.step()
            except Exception as error:
                raise self._failure(copy, f"in step {copy.steps + 1} of") from error

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

    def _failure(self, copy: Copy, when: str) -> CopyFailure:
        trace = traceback.format_exc().rstrip()
        seed = int(copy.episode_seed[0])
        return CopyFailure(
            f"{self.source.name}: copy {copy.index} failed {when} the episode with seed {seed}\n\n{trace}"
        )


def _quits_pygame(env: Any) -> bool:
    """These close by shutting pygame down for all that the process does with it."""
    module = type(getattr(env, "unwrapped", env)).__module__
    return module.startswith(("pettingzoo.", "mpe2."))


class Copy:
    """One environment, the episode it is in, and its rows."""

    def __init__(self, source: Source, env: Any, spec: EnvSpec, arrays: Arrays, index: int, n_envs: int) -> None:
        self.index, self.n_envs, self.max_steps = index, n_envs, source.max_steps
        self.env = env if source.stock else shortened(env)
        self.seed = arrays.seed
        self.done = arrays.done[index : index + 1]
        self.episode_seed = arrays.episode_seed[index : index + 1]
        self.state = None if arrays.state is None else arrays.state[index]
        self.final_state = None if arrays.final_state is None else arrays.final_state[index]
        codecs = codecs_of(env)
        self.groups = [GroupRows(group, arrays.groups[group.name], index, codecs) for group in spec.groups]
        self.spaces = list({id(space): space for space in map(env.action_space, env.possible_agents)}.values())
        self.is_known = isinstance(self.env, Cycle)  # and so draws from no generator but its own
        self.generators = GlobalGenerators()
        self.episode = self.steps = 0
        self.living: list[str] = []
        self.flagged = False

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
        if self.is_known:
            observations, rewards, terminations, truncations, infos = self.env.step(actions)
        else:
            self.generators.enter()
            observations, rewards, terminations, truncations, infos = self.env.step(actions)
            self.generators.leave()
        self.steps += 1
        if self.flagged:
            self._clear_flags()
        if self.env.agents == self.living and not (
            True in terminations.values() or True in truncations.values() or self.steps == self.max_steps
        ):
            for group in self.groups:
                group.write(observations, rewards, infos)
            if self.state is not None:
                self.state[...] = self.env.state()
        else:
            self._end(observations, rewards, terminations, truncations, infos)

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
        self.steps = 0
        if not self.is_known:
            for space in self.spaces:
                space.seed(seed)
            self.generators.seed(seed)
        observations, infos = self.env.reset(seed=seed)
        if not self.is_known:
            self.generators.after_reset()
        agents = list(self.env.agents)
        if not agents:
            raise EnvError("no agent is there after reset")
        self._live(agents, observations, infos)

    def _live(self, agents: list[str], observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        self.living = agents
        living = set(agents)
        for group in self.groups:
            group.live(living, observations, infos)
        if self.state is not None:
            self.state[...] = self.env.state()


class GroupRows:
    """One group's rows of one copy: actions read, and what comes of them written."""

    def __init__(self, spec: GroupSpec, arrays: GroupArrays, index: int, codecs: Codecs) -> None:
        self.agents, self.n_logits = spec.agents, spec.action.n_logits
        self.action, self.reward = arrays.action[index], arrays.reward[index]
        self.alive, self.acting = arrays.alive[index], arrays.acting[index]
        self.terminated, self.truncated = arrays.terminated[index], arrays.truncated[index]
        self.mask = None if arrays.action_mask is None else arrays.action_mask[index]
        self.rows = [
            (agent, arrays.observation[index, i], codecs.observation[agent]) for i, agent in enumerate(spec.agents)
        ]
        self.final_rows = list(arrays.final_observation[index])
        self.decoders = [codecs.action[agent].decode for agent in spec.agents]
        self.plain = all(codecs.observation[agent].is_plain for agent in spec.agents)
        self.present: list[int] = []
        self.all_present = False

    def read(self, actions: dict[str, Any]) -> None:
        """Adds the actions of those who live; an environment may keep them, so they are copies."""
        block = self.action.copy()
        for i in self.present:
            actions[self.agents[i]] = self.decoders[i](block[i])

    def write(self, observations: Mapping[str, Any], rewards: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """A step at which nobody of this copy appears or ends."""
        if self.all_present:
            self.reward[:] = [rewards[agent] for agent in self.agents]
            if self.plain and self.mask is None:
                for agent, row, _ in self.rows:
                    row[...] = observations[agent]
                return
        else:
            self.reward[:] = 0
            for i in self.present:
                self.reward[i] = rewards[self.agents[i]]
        self._observe(observations, infos)

    def end(
        self,
        was: set[str],
        terminated: set[str],
        truncated: set[str],
        observations: Mapping[str, Any],
        rewards: Mapping[str, Any],
    ) -> None:
        """A step at which somebody of this copy appears or ends."""
        for i, agent in enumerate(self.agents):
            self.reward[i] = rewards.get(agent, 0.0) if agent in was else 0.0
            self.terminated[i] = agent in was and agent in terminated
            self.truncated[i] = agent in was and agent in truncated
            if self.terminated[i] or self.truncated[i]:
                if observations.get(agent) is None:
                    self.final_rows[i][...] = 0
                else:
                    self.rows[i][2].write(observations[agent], self.final_rows[i])

    def live(self, living: set[str], observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Whose rows hold something from now on; the others' are zero."""
        self.present = [i for i, agent in enumerate(self.agents) if agent in living]
        self.all_present = len(self.present) == len(self.agents)
        for i, (agent, row, codec) in enumerate(self.rows):
            self.alive[i] = self.acting[i] = agent in living
            if agent not in living:
                row[...] = 0
                if self.mask is not None:
                    self.mask[i] = True
            elif agent not in observations:
                raise EnvError(f"agent {agent!r} is in env.agents but was given no observation")
            else:
                codec.check(agent, observations[agent])
        self._observe(observations, infos)

    def _observe(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        for i in self.present:
            agent, row, codec = self.rows[i]
            value = observations[agent]
            codec.write(value, row)
            if self.mask is not None:
                self._write_mask(i, value[MASK] if codec.mask_inside else infos.get(agent, {}).get(MASK))

    def _write_mask(self, i: int, mask: Any) -> None:
        """An agent without any choice is waiting: alive, not acting, and its mask reads all True."""
        assert self.mask is not None
        allowed = np.True_ if mask is None else mask_array(mask, self.n_logits)
        may_act = bool(allowed.any())
        self.acting[i] = may_act
        self.mask[i] = allowed if may_act else True

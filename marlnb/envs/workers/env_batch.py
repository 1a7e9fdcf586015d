"""The envs of one process, stepped one after the other. Each writes its rows of the shared arrays."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marlnb.envs.picture import checked_picture
from marlnb.envs.workers.api import StepResult, check_reset, check_step, find_violation
from marlnb.envs.workers.fast_parallel import FastParallel, fast_parallel
from marlnb.envs.workers.labels import LabelRows
from marlnb.envs.workers.memory import Arrays
from marlnb.envs.workers.randomness import CopiedGenerator, EnvGenerators, SeededSpaces
from marlnb.envs.workers.rows import GroupRows
from marlnb.envs.workers.source import EnvSource, codecs_of, describe
from marlnb.envs.workers.turn_based import TurnBasedEnv
from marlnb.errors import EnvBuildError, EnvError, MarlnbError, kind_of
from marlnb.specs import SEED_SPAN, EnvSpec


class EnvBatch:
    """Some of the B envs: those of one process."""

    def __init__(self, source: EnvSource, indices: Sequence[int]) -> None:
        self.source = source
        self.envs = {index: source.make() for index in indices}
        self.slots: list[EnvSlot] = []

    def describe(self) -> EnvSpec:
        try:
            return describe(self.source, next(iter(self.envs.values())))
        except EnvBuildError:
            raise
        except EnvError as error:
            raise EnvBuildError(f"{self.source.name}: {error}") from error
        except Exception as error:
            trace = traceback.format_exc().rstrip()
            raise EnvBuildError(f"{self.source.name}: reading its agents and spaces failed\n\n{trace}") from error

    def attach(self, spec: EnvSpec, arrays: Arrays, n_envs: int) -> None:
        """From now on, every env writes into these arrays."""
        self.slots = [EnvSlot(self.source, env, spec, arrays, index, n_envs) for index, env in self.envs.items()]

    def reset(self) -> None:
        self._for_each(EnvSlot.reset)

    def step(self) -> None:
        self._for_each(EnvSlot.step)

    def write_labels(self) -> None:
        self._for_each(EnvSlot.write_labels)

    def _for_each(self, run: Callable[[EnvSlot], None]) -> None:
        for slot in self.slots:
            try:
                run(slot)
            except (Exception, SystemExit) as error:  # pygame's environments exit when their window is closed
                raise self._failure(slot, error) from error

    def render(self, index: int) -> np.ndarray:
        """Env `index` as an image `[height, width, 3]` uint8."""
        return checked_picture(self.source.name, "render()", self.envs[index].render())

    def draw_ends(self, pictures: dict[int, np.ndarray]) -> None:
        """From now on, writes a picture of each env after its episodes' last steps into `pictures`."""

        def draw(index: int) -> None:
            pictures[index] = self.render(index)

        for slot in self.slots:
            slot.draw_end = draw

    @property
    def swapped(self) -> set[CopiedGenerator]:
        """The copied generators of which some env has a state of its own."""
        return {generator for slot in self.slots if not slot.is_trusted for generator in slot.generators.swapped}

    def close(self) -> None:
        for env in self.envs.values():
            close_env(env)

    def _failure(self, slot: EnvSlot, error: BaseException) -> MarlnbError:
        """The error with env, episode and step; with a traceback if the environment itself raised."""
        when = "while being reset to" if slot.is_resetting else f"in step {slot.steps} of"
        seed = int(slot.episode_seed[0])
        prefix = f"{self.source.name}: env {slot.index} failed {when} the episode with seed {seed}"
        kind = kind_of(error)
        if kind is None:
            return EnvError(f"{prefix}\n\n{traceback.format_exc().rstrip()}")
        return kind(f"{prefix}: {error}")


def close_env(env: Any) -> None:
    """Closes a user's environment. PettingZoo's and mpe2's own would shut pygame down for the whole process."""
    if not type(getattr(env, "unwrapped", env)).__module__.startswith(("pettingzoo.", "mpe2.")):
        env.close()


class EnvSlot:
    """One env, its current episode, and its rows."""

    def __init__(self, source: EnvSource, env: Any, spec: EnvSpec, arrays: Arrays, index: int, n_envs: int) -> None:
        self.index, self.n_envs, self.max_steps = index, n_envs, source.max_steps
        self.env = env if source.stock else fast_parallel(env)
        self.seed = arrays.seed
        self.done = arrays.done[index : index + 1]
        self.episode_seed = arrays.episode_seed[index : index + 1]
        self.state = None if arrays.state is None else arrays.state[index]
        self.final_state = None if arrays.final_state is None else arrays.final_state[index]
        codecs = codecs_of(source, env)
        self.groups = [GroupRows(group, arrays.groups[group.name], index, codecs) for group in spec.groups]
        self.label_rows = LabelRows(env, spec, arrays.labels, index)
        self.action_spaces = list({id(each): each for each in map(env.action_space, env.possible_agents)}.values())
        observed = {id(each): each for each in map(env.observation_space, env.possible_agents)}
        self.observation_spaces = SeededSpaces(list(observed.values()))
        self.is_turn_based = isinstance(self.env, TurnBasedEnv)
        self.needs_flags = not self.is_turn_based  # whose flags hold the agents that have ended
        self.is_trusted = isinstance(self.env, FastParallel)  # keeps to the API, and draws only from its own generator
        self.generators = EnvGenerators()
        self.episode = self.steps = 0
        self.possible = frozenset(env.possible_agents)
        self.living: list[str] = []
        self.n_living = 0
        self.has_flags = self.is_resetting = False
        self.draw_end: Callable[[int], None] | None = None

    def reset(self) -> None:
        """Starts episode number zero of the seed that all envs were given."""
        self.episode = 0
        self._clear_flags()
        for group in self.groups:
            group.reward[:] = 0
        self._start_episode()

    def step(self) -> None:
        actions: dict[str, Any] = {}
        for group in self.groups:
            group.read_actions(actions)
        self.steps += 1
        if self.is_trusted:
            result = self.env.step(actions)
        else:
            self.generators.enter()
            result = check_step(self.env.step(actions))
            self.generators.leave()
        was_living = self.living
        try:
            self._write(result)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # checking every step for violations would cost time, so it is done only after a failure
            violation = find_violation(result, was_living, self.possible, needs_flags=self.needs_flags)
            if violation is None:
                raise
            raise EnvError(violation) from error

    def write_labels(self) -> None:
        """Writes the labels of the current time step."""
        self.label_rows.write(self.living)

    def _write(self, result: StepResult) -> None:
        """Writes the result of a step."""
        observations, rewards, terminations, truncations, infos = result
        if self.has_flags:
            self._clear_flags()
        if (len(observations) > len(self.living) or len(rewards) > len(self.living)) and not (
            observations.keys() <= self.possible and rewards.keys() <= self.possible
        ):
            raise KeyError("an unknown agent")  # `find_violation` names it
        if self.needs_flags and (len(terminations) < self.n_living or len(truncations) < self.n_living):
            raise KeyError("a missing flag")
        if self.env.agents == self.living and not (
            True in terminations.values() or True in truncations.values() or self.steps == self.max_steps
        ):
            for group in self.groups:
                group.write(observations, rewards, infos)
            self._write_current()
        elif self.is_trusted or (
            rewards.keys() >= set(self.living)
            and not (self.needs_flags and set(self.living) - (terminations.keys() & truncations.keys()))
        ):
            self._write_ends(result)
        else:
            raise KeyError("a missing reward or flag")  # `find_violation` names the agent

    def _clear_flags(self) -> None:
        self.has_flags = self.done[0] = False
        for group in self.groups:
            group.terminated[:] = group.truncated[:] = False

    def _write_ends(self, result: StepResult) -> None:
        """A step at which agents appear or end; if no agent is left, the next episode starts."""
        observations, rewards, terminations, truncations, infos = result
        self.has_flags, was_living = True, set(self.living)
        out_of_time = self.steps == self.max_steps
        terminated = {agent for agent, ended in terminations.items() if ended}
        truncated = {agent for agent, ended in truncations.items() if ended}
        left = set() if out_of_time else set(self.env.agents) - terminated - truncated
        if out_of_time:
            truncated |= was_living - terminated
        terminated |= was_living - left - truncated
        for group in self.groups:
            group.write_ends(was_living, terminated, truncated, observations, rewards)
            if truncated and group.final_mask is not None:
                group.write_final_masks(observations, infos, self.env.acting if self.is_turn_based else ())
        if left:
            self._set_living([agent for agent in self.env.agents if agent in left], observations, infos)
            return
        self.done[0] = True
        if self.final_state is not None:
            self._write_state(self.final_state)
        if self.draw_end is not None:
            self.draw_end(self.index)
        self.episode += 1
        self.generators.end_episode()
        self.observation_spaces.end_episode()
        self._start_episode()

    def _start_episode(self) -> None:
        seed = int(self.seed[0] + self.episode * self.n_envs + self.index) % SEED_SPAN
        self.episode_seed[0] = seed
        self.steps, self.is_resetting = 0, True
        if self.is_trusted:
            observations, infos = check_reset(self.env.reset(seed=seed))
        else:
            for space in self.action_spaces:
                space.seed(seed)
            self.observation_spaces.seed(seed)
            with self.generators.reset(seed):
                observations, infos = check_reset(self.env.reset(seed=seed))
        agents = list(self.env.agents)
        if not agents:
            raise EnvError("env.agents is empty after reset")
        if unknown := [agent for agent in (*agents, *observations) if agent not in self.possible]:
            raise EnvError(f"agent {unknown[0]!r} after reset is not among possible_agents {sorted(self.possible)}")
        self._set_living(agents, observations, infos)
        self.is_resetting = False

    def _set_living(self, agents: list[str], observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        self.living = agents
        living = set(agents)
        self.n_living = len(living)
        for group in self.groups:
            group.set_living(living, observations, infos)
        self._write_current()

    def _write_current(self) -> None:
        """Writes which agents act now, and the global state."""
        if self.is_turn_based:
            for group in self.groups:
                group.set_acting(self.env.acting, self.env.mask_may_forbid_all)
        if self.state is not None:
            self._write_state(self.state)

    def _write_state(self, row: np.ndarray) -> None:
        """Writes the global state as critics read it: bytes are scaled to 0..1, as those of observations are."""
        state = np.asarray(self.env.state())
        row[...] = state.astype(np.float32) / 255 if state.dtype == np.uint8 else state

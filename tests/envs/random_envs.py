"""Environments that are drawn at random, and a loop over one copy of them that knows nothing of marlnb.

Everything in an episode follows from the plan, the episode's seed and the actions: who is there, who observes what,
rewards, masks, ends and turns. The plain loops below step an environment as PettingZoo's documentation does.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv


@dataclass(frozen=True)
class Plan:
    """What kind of environment.

    Attributes:
        observations: the space of each group's observations.
        actions: the space of each group's actions.
        sizes: number of agents of each group.
        mask: "none", "observation" or "info": where masks are, of groups with discrete actions.
        length: the longest episode.
        max_steps: an additional limit; None: none.
        comings: the probability that an agent that is away comes at a step.
        goings: the probability that an agent ends at a step.
        number: of the plan's random numbers.
    """

    observations: tuple[spaces.Space[Any], ...]
    actions: tuple[spaces.Space[Any], ...]
    sizes: tuple[int, ...]
    mask: str = "none"
    length: int = 6
    max_steps: int | None = None
    comings: float = 0.3
    goings: float = 0.2
    number: int = 0

    @property
    def agents(self) -> list[str]:
        return [f"g{group}_{i}" for group, size in enumerate(self.sizes) for i in range(size)]

    def group_of(self, agent: str) -> int:
        return int(agent[1 : agent.index("_")])

    def n_choices(self, agent: str) -> int:
        """Of a discrete action; 0 where there is no mask."""
        action = self.actions[self.group_of(agent)]
        return int(action.n) if self.mask != "none" and isinstance(action, spaces.Discrete) else 0


def sample(space: spaces.Space[Any], draw: np.random.Generator) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: sample(item, draw) for key, item in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sample(item, draw) for item in space.spaces)
    if isinstance(space, spaces.Discrete):
        return int(space.start + draw.integers(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return space.start + draw.integers(space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return draw.integers(0, 2, space.shape, np.int8)
    if space.dtype == np.uint8:
        return draw.integers(0, 256, space.shape, np.uint8)
    return draw.uniform(-1, 1, space.shape).astype(space.dtype)


class _Random:
    """What both kinds of environments share."""

    metadata: ClassVar[dict[str, Any]] = {"name": "random"}
    render_mode = None

    def __init__(self, plan: Plan) -> None:
        self.plan, self.possible_agents, self.agents = plan, plan.agents, list[str]()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        space = self.plan.observations[self.plan.group_of(agent)]
        if self.plan.mask == "observation" and (n := self.plan.n_choices(agent)):
            return spaces.Dict({"observation": space, "action_mask": spaces.Box(0, 1, (n,), np.int8)})
        return space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.plan.actions[self.plan.group_of(agent)]

    def draw(self, *words: Any) -> np.random.Generator:
        """Random numbers of this time step, after all actions so far."""
        return np.random.default_rng([self.plan.number, self.given, zlib.crc32(repr((self.history, words)).encode())])

    def start(self, seed: int | None) -> None:
        self.given, self.history, self.t = seed or 0, 0, 0
        self.length = int(self.draw("length").integers(1, self.plan.length + 1))

    def remember(self, agent: str, action: Any) -> None:
        """The numbers of an action, as they come: another action leads to other numbers from now on."""
        text = json.dumps(action, default=lambda x: x.tolist() if hasattr(x, "tolist") else repr(x))
        self.history = zlib.crc32(f"{self.history} {self.t} {agent} {text}".encode())

    def see(self, agent: str) -> Any:
        seen = sample(self.plan.observations[self.plan.group_of(agent)], self.draw("observation", agent))
        if self.plan.mask == "observation" and self.plan.n_choices(agent):
            return {"observation": seen, "action_mask": self.mask(agent)}
        return seen

    def mask(self, agent: str) -> np.ndarray:
        return (self.draw("mask", agent).random(self.plan.n_choices(agent)) < 0.6).astype(np.int8)

    def info(self, agent: str) -> dict[str, Any]:
        has_mask = self.plan.mask == "info" and self.plan.n_choices(agent)
        return {"action_mask": self.mask(agent)} if has_mask else {}

    def reward(self, agent: str) -> Any:
        value = round(float(self.draw("reward", agent).normal()), 3)
        return (value, np.float32(value), np.float64(value), int(value * 3))[self.t % 4]

    def goes(self, agent: str) -> bool:
        return self.t >= self.length or bool(self.draw("goes", agent).random() < self.plan.goings)

    def comes(self, agent: str) -> bool:
        return self.t < self.length and bool(self.draw("comes", agent).random() < self.plan.comings)

    def end(self, agent: str) -> tuple[bool, bool]:
        """(terminated, truncated) of an agent that goes; sometimes neither: it is only missing from then on."""
        kind = int(self.draw("end", agent).integers(4))
        return kind in (0, 2), kind in (1, 2)


class RandomParallel(_Random, ParallelEnv):  # type: ignore[type-arg, misc]
    """Agents come, go and come back, also without a word."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.start(seed)
        share = 1.0 if self.plan.mask == "info" else 0.7  # infos of the first reset tell who has masks
        there = [agent for agent in self.possible_agents if self.draw("there", agent).random() < share]
        self.agents = there or self.possible_agents[:1]
        return {agent: self.see(agent) for agent in self.agents}, {agent: self.info(agent) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert list(actions) == [agent for agent in self.possible_agents if agent in self.agents]
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
            self.remember(agent, action)
        self.t += 1
        before = list(self.agents)
        goes = {agent: self.goes(agent) for agent in before}
        ends = {agent: self.end(agent) if goes[agent] else (False, False) for agent in before}
        comes = [agent for agent in self.possible_agents if agent not in before and self.comes(agent)]
        self.agents = [agent for agent in before if not goes[agent]] + comes
        seen = before + comes
        return (
            {agent: self.see(agent) for agent in seen},
            {agent: self.reward(agent) for agent in before},
            {agent: ends[agent][0] for agent in before},
            {agent: ends[agent][1] for agent in before},
            {agent: self.info(agent) for agent in seen},
        )


class RandomTurns(_Random, AECEnv):  # type: ignore[type-arg, misc]
    """Turns in a random order; agents end in their own turns and in those of others."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.start(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = self._next()
        self._inform()

    def observe(self, agent: str) -> Any:
        return self.see(agent)

    def mask(self, agent: str) -> np.ndarray:
        mask = super().mask(agent)
        mask[int(self.draw("always", agent).integers(len(mask)))] = 1
        return mask if agent == self.agent_selection else np.zeros_like(mask)

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        assert self.action_space(mover).contains(action), (mover, action)
        self.remember(mover, action)
        self.t += 1
        self._cumulative_rewards[mover] = 0.0
        living = [a for a in self.agents if not (self.terminations[a] or self.truncations[a])]
        self.rewards = {agent: float(self.reward(agent)) if agent in living else 0.0 for agent in self.agents}
        self._accumulate_rewards()
        for agent in living:
            if self.goes(agent):
                terminated, truncated = self.end(agent)
                self.terminations[agent], self.truncations[agent] = terminated or not truncated, truncated
        self.agent_selection = self._next()
        self._inform()
        self._deads_step_first()

    def _next(self) -> str:
        living = [a for a in self.agents if not (self.terminations[a] or self.truncations[a])] or self.agents
        return str(living[int(self.draw("next").integers(len(living)))])

    def _inform(self) -> None:
        self.infos = {agent: self.info(agent) for agent in self.agents}


def decode(space: spaces.Space[Any], row: np.ndarray) -> Any:
    """The action of `space` that marlnb's numbers stand for, as its documentation says."""
    if isinstance(space, spaces.Discrete):
        return int(row) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return row.reshape(space.shape) + space.start
    if isinstance(space, spaces.MultiBinary):
        return row.astype(np.int8).reshape(space.shape)
    return row.reshape(space.shape).astype(space.dtype)


@dataclass
class Row:
    """One agent at one step.

    Attributes:
        alive, acting: before the step.
        observation: before the step, flat; None for an agent that is not there.
        mask: of its choices; None: all are allowed.
        reward, terminated, truncated: of the step.
        after: what it observed after the step, flat: its last observation if it ended; None if it was not there.
    """

    alive: bool = False
    acting: bool = False
    observation: np.ndarray | None = None
    mask: np.ndarray | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    after: np.ndarray | None = None


@dataclass
class PlainStep:
    """One step of one copy: the rows of all agents, the episode's seed, and whether the episode ended."""

    rows: dict[str, Row]
    seed: int
    done: bool = False


Actions = Callable[[int, str], np.ndarray]
"""Of a step's number and an agent: marlnb's numbers of its action."""


def flat(plan: Plan, agent: str, value: Any) -> np.ndarray:
    space = plan.observations[plan.group_of(agent)]
    if isinstance(value, dict) and "action_mask" in value:
        value = value["observation"]
    return np.float32(value if isinstance(space, spaces.Box) else spaces.flatten(space, value))


def masks(value: Any, info: Mapping[str, Any]) -> np.ndarray | None:
    inside = value.get("action_mask") if isinstance(value, dict) else None
    mask = info.get("action_mask") if inside is None else inside
    return None if mask is None else mask.astype(bool)


def plain_parallel(plan: Plan, seeds: Iterator[int], actions: Actions, n_steps: int) -> list[PlainStep]:
    """`n_steps` steps of one copy: `reset`, then `step` with every living agent's action, until no agent is left."""
    env, steps = RandomParallel(plan), list[PlainStep]()
    living: list[str] = []
    for t in range(n_steps):
        if not living:
            seed, taken = next(seeds), 0
            observations, infos = env.reset(seed=seed)
            living = list(env.agents)
        step = PlainStep({agent: Row() for agent in plan.agents}, seed)
        steps.append(step)
        for agent in living:
            row, mask = step.rows[agent], masks(observations[agent], infos[agent])
            row.alive, row.observation = True, flat(plan, agent, observations[agent])
            row.acting, row.mask = mask is None or bool(mask.any()), mask
        taken += 1
        chosen = {a: decode(env.action_space(a), actions(t, a)) for a in plan.agents if a in living}
        observations, rewards, terminations, truncations, infos = env.step(chosen)
        is_over = taken == plan.max_steps
        left = [a for a in env.agents if not is_over and not (terminations.get(a) or truncations.get(a))]
        for agent in living:
            row = step.rows[agent]
            row.reward, row.after = float(np.float32(rewards[agent])), flat(plan, agent, observations[agent])
            row.terminated, row.truncated = terminations[agent], truncations[agent]
            if agent not in left and not (row.terminated or row.truncated):
                row.terminated, row.truncated = not is_over, is_over
        living, step.done = left, not left
    return steps


def plain_turns(plan: Plan, seeds: Iterator[int], actions: Actions, n_steps: int) -> list[PlainStep]:
    """`n_steps` turns of one copy: the selected agent acts; one that has ended takes a last step without an action."""
    env, steps = RandomTurns(plan), list[PlainStep]()
    for t in range(n_steps):
        if not env.agents:
            seed = next(seeds)
            env.reset(seed=seed)
        step = PlainStep({agent: Row() for agent in plan.agents}, seed)
        steps.append(step)
        mover, living = env.agent_selection, list(env.agents)
        for agent in living:
            row, seen = step.rows[agent], env.observe(agent)
            row.alive, row.acting, row.observation = True, agent == mover, flat(plan, agent, seen)
            row.mask = masks(seen, env.infos[agent]) if agent == mover else None
        env.step(decode(env.action_space(mover), actions(t, mover)))
        for agent in living:
            row = step.rows[agent]
            row.reward, row.after = float(np.float32(env.rewards[agent])), flat(plan, agent, env.observe(agent))
            row.terminated, row.truncated = env.terminations[agent], env.truncations[agent]
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        step.done = not env.agents
    return steps


def plain_returns(steps: list[PlainStep], agents: list[str]) -> list[list[float]]:
    """Of each episode that ended, each agent's sum of rewards."""
    episodes, sums = [], dict.fromkeys(agents, 0.0)
    for step in steps:
        for agent in agents:
            sums[agent] += step.rows[agent].reward
        if step.done:
            episodes.append([sums[agent] for agent in agents])
            sums = dict.fromkeys(agents, 0.0)
    return episodes


def plain_advantages(
    steps: list[PlainStep],
    agent: str,
    values: Mapping[int, float],
    *,
    gamma: float,
    gae_lambda: float,
    turns: bool,
    waits: bool = False,
) -> dict[int, float]:
    """Of each step at which the agent learns, its generalised advantage, from the last step to the first.

        delta = r + gamma (1 - terminated) V(next) - V(now),    A = delta + gamma lambda (1 - ended) A(next)

    With turns, the agent's next step is its next turn, and rewards are summed until then; a turn whose end the steps do
    not show is left out, and one that is truncated if the agent `waits`.

    Args:
        values: V of each observation, by the `id` of its array.
    """
    advantages: dict[int, float] = {}
    following, reward, end = 0.0, 0.0, None
    for t in reversed(range(len(steps))):
        row = steps[t].rows[agent]
        if not row.alive:
            following, reward, end = 0.0, 0.0, None
            continue
        has_ended = row.terminated or row.truncated
        if has_ended or not turns or (t + 1 < len(steps) and steps[t + 1].rows[agent].acting):
            following = 0.0 if has_ended else following
            reward, end = 0.0, None if waits and row.truncated and not row.terminated else row
        reward += row.reward
        if (turns and not row.acting) or end is None:
            continue
        future = 0.0 if end.terminated else gamma * values[id(end.after)]
        following = reward + future - values[id(row.observation)] + gamma * gae_lambda * following
        advantages[t] = following
    return {t: advantage for t, advantage in advantages.items() if steps[t].rows[agent].acting}

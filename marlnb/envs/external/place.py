"""A place for one simulator's episode: its rows of the step's buffers, and what a simulator may report there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marlnb.client import Agent, InvalidReport, Message
from marlnb.envs.vector import GroupStep, Step
from marlnb.specs import EnvSpec

MOST_REWARD = 3.4e38  # float32 holds no more


@dataclass
class Report:
    """A request that has been checked: nothing of it can fail any more. All by agent; truncated: the episode was."""

    rewards: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, bool] = field(default_factory=dict)
    observation: dict[str, np.ndarray] = field(default_factory=dict)
    mask: dict[str, np.ndarray] = field(default_factory=dict)
    final: dict[str, np.ndarray] = field(default_factory=dict)
    truncated: bool = False


class Place:
    """One copy's rows.

    Attributes:
        number: of the episode that is under way, or will be when a simulator comes.
        asked: (agent, group, index) of those who wait for an action now.
        is_shown: actions have been taken in this episode, so that its end is an end to learn from.
        requests: how often somebody has been given an action.
    """

    def __init__(self, index: int, spec: EnvSpec, step: Step) -> None:
        self.index, self._done = index, step.done
        self._rows = {
            agent: _Row(group.name, i, index, step.groups[group.name])
            for group in spec.groups
            for i, agent in enumerate(group.agents)
        }
        self.number = 0
        self.vacate()

    def vacate(self) -> None:
        """Nobody is here; all agents are alive and wait."""
        self.asked: list[tuple[str, str, int]] = []
        self.is_shown = False
        self.requests = 0
        self._early: dict[str, float] = {}
        for row in self._rows.values():
            row.begin()

    @property
    def living(self) -> list[str]:
        return [agent for agent, row in self._rows.items() if row.alive[row.at]]

    def take_early(self) -> None:
        """Rewards that came before the first action belong to the step in which it is taken."""
        for agent, value in self._early.items():
            row = self._rows[agent]
            row.reward[row.at] += value
        self._early = {}

    def report(self, report: Report) -> None:
        """Enters rewards and the ends of single agents."""
        for agent, value in report.rewards.items():
            row = self._rows[agent]
            if self.is_shown:
                row.reward[row.at] += value
            else:
                self._early[agent] = self._early.get(agent, 0.0) + value
        for agent, truncated in report.ended.items():
            self._rows[agent].end(truncated, report.final.get(agent))

    def ask(self, report: Report) -> None:
        """Enters what those see who want to act now."""
        self.requests += 1
        for agent, observation in report.observation.items():
            row = self._rows[agent]
            row.show(observation, report.mask.get(agent))
            self.asked.append((agent, row.group, row.at[1]))

    def finish(self, *, truncated: bool, last: Mapping[str, np.ndarray] | None = None) -> None:
        """The episode ends for all who live, and the next begins; one in which nobody acted has never been."""
        if self.is_shown:
            for agent in self.living:
                self._rows[agent].end(truncated, (last or {}).get(agent))
            self._done[self.index] = True
            self.number += 1
        self.vacate()


class _Row:
    """One agent's row of one copy, in numpy views of the step's buffers."""

    def __init__(self, group: str, i: int, copy: int, step: GroupStep) -> None:
        self.group, self.at = group, (copy, i)
        self.alive, self.acting = step.alive.numpy(), step.acting.numpy()
        self.reward = step.reward.numpy()
        self._observation, self._final = step.observation.numpy(), step.final_observation.numpy()
        self._terminated, self._truncated = step.terminated.numpy(), step.truncated.numpy()
        self._mask = None if step.action_mask is None else step.action_mask.numpy()

    def begin(self) -> None:
        self.alive[self.at] = True
        self._blank()

    def show(self, observation: np.ndarray, mask: np.ndarray | None) -> None:
        self._observation[self.at] = observation
        self.acting[self.at] = True
        if self._mask is not None:
            self._mask[self.at] = True if mask is None else mask

    def end(self, truncated: bool, last: np.ndarray | None) -> None:
        self._final[self.at] = self._observation[self.at] if last is None else last
        (self._truncated if truncated else self._terminated)[self.at] = True
        self.alive[self.at] = False
        self._blank()

    def _blank(self) -> None:
        self._observation[self.at] = 0
        self.acting[self.at] = False
        if self._mask is not None:
            self._mask[self.at] = True


def agents_of(spec: EnvSpec) -> dict[str, Agent]:
    """What simulators are told about each agent."""
    return {
        agent: Agent(
            agent,
            group.name,
            group.observation.shape,
            group.observation.dtype,
            group.action.kind,
            group.action.n,
            group.action.low,
            group.action.high,
            group.has_action_mask,
        )
        for group in spec.groups
        for agent in group.agents
    }


def checked(message: Message, agents: Mapping[str, Agent], place: Place, *, needs_observations: bool) -> Report:
    """A request as a Report.

    Raises:
        InvalidReport: an agent that is not there or has ended, a shape or value that is not as the groups say.
    """
    living = place.living
    report = Report(
        rewards=_by_agent(message, "rewards", living, _reward),
        ended=_by_agent(message, "ended", living, _flag),
        truncated=_flag("the episode", message.header.get("truncated", False)),
    )
    if report.ended and not place.is_shown:
        raise InvalidReport(f"end of {sorted(report.ended)[0]!r}: nobody has acted in this episode yet")
    for (kind, name), array in message.arrays.items():
        if name not in living or (kind != "final" and name in report.ended):
            raise InvalidReport(f"{kind} of {name!r}: {_absent(name, agents, living)}")
        if kind == "observation" and needs_observations:
            report.observation[name] = agents[name].observation(array)
        elif kind == "mask" and needs_observations:
            report.mask[name] = agents[name].mask(array)
        elif kind == "final":
            report.final[name] = agents[name].observation(array)
        else:
            raise InvalidReport(f"{kind} of {name!r} does not belong in {message.op!r}")
    if needs_observations and not report.observation:
        raise InvalidReport("a request needs the observation of at least one agent")
    if strangers := set(report.mask) - set(report.observation):
        raise InvalidReport(f"action mask of {sorted(strangers)[0]!r}, who does not ask")
    return report


def _absent(name: str, agents: Mapping[str, Agent], living: list[str]) -> str:
    if name not in agents:
        return f"no such agent; there are {', '.join(agents)}"
    return f"its episode has ended; {', '.join(living)} live"


def _by_agent(message: Message, key: str, living: list[str], read: Any) -> dict[str, Any]:
    given = message.header.get(key, {})
    if not isinstance(given, dict):
        raise InvalidReport(f"{key} must be by agent; got {str(given)[:80]}")
    for name in given:
        if name not in living:
            raise InvalidReport(f"{key} of {name!r}: not one of those who live: {', '.join(living)}")
    return {name: read(name, value) for name, value in given.items()}


def _reward(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST_REWARD < value < MOST_REWARD:
        raise InvalidReport(f"reward of {name!r}: got {str(value)[:80]}; wanted a finite number")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidReport(f"whether {name!r} was truncated: got {str(value)[:80]}; wanted true or false")
    return value

"""A slot for one simulator's episode: its rows of the step's buffers, and the reports that a simulator may send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marlnb.client.agent import Agent
from marlnb.client.messages import MAX_REWARD, InvalidReport, Message
from marlnb.envs.vector import GroupStep, Step
from marlnb.specs import EnvSpec


@dataclass
class Report:
    """A request that has been checked: applying it cannot fail.

    Attributes:
        rewards: by agent.
        ended: by agent whose episode ended: whether it was truncated.
        observation: by agent that needs an action.
        mask: action masks, by agent that needs an action.
        final: last observations, by agent whose episode ended.
        final_mask: action masks at the last observations, by agent whose episode ended.
        truncated: whether the whole episode was truncated.
    """

    rewards: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, bool] = field(default_factory=dict)
    observation: dict[str, np.ndarray] = field(default_factory=dict)
    mask: dict[str, np.ndarray] = field(default_factory=dict)
    final: dict[str, np.ndarray] = field(default_factory=dict)
    final_mask: dict[str, np.ndarray] = field(default_factory=dict)
    truncated: bool = False


class EpisodeSlot:
    """One env's rows.

    Attributes:
        episode: number of the current episode, or of the next one if no simulator plays here.
        requested: (agent, group, agent index) of the agents that need an action now.
        has_acted: actions have been sent in this episode, so there is a transition to learn from.
        n_requests: how often actions were requested in this episode.
    """

    def __init__(self, env_index: int, spec: EnvSpec, step: Step) -> None:
        self.env_index, self._done = env_index, step.done
        self._rows = {
            agent: _AgentRow(group.name, i, env_index, step.groups[group.name])
            for group in spec.groups
            for i, agent in enumerate(group.agents)
        }
        self.episode = 0
        self.clear()

    def clear(self) -> None:
        """No simulator plays here: all agents are alive and none acts."""
        self.requested: list[tuple[str, str, int]] = []
        self.has_acted = False
        self.n_requests = 0
        self._early_rewards: dict[str, float] = {}
        for row in self._rows.values():
            row.start()

    @property
    def living(self) -> list[str]:
        return [agent for agent, row in self._rows.items() if row.alive[row.at]]

    def add_early_rewards(self) -> None:
        """Adds rewards reported before the first action to the step in which that action is taken."""
        for agent, value in self._early_rewards.items():
            row = self._rows[agent]
            row.reward[row.at] += value
        self._early_rewards = {}

    def apply(self, report: Report) -> None:
        """Enters rewards and the ends of single agents."""
        for agent, value in report.rewards.items():
            row = self._rows[agent]
            if self.has_acted:
                row.reward[row.at] += value
            else:
                self._early_rewards[agent] = self._early_rewards.get(agent, 0.0) + value
        for agent, truncated in report.ended.items():
            self._rows[agent].end(truncated, report.final.get(agent), report.final_mask.get(agent))

    def request_actions(self, report: Report) -> None:
        """Enters the observations of the agents that need an action."""
        self.n_requests += 1
        for agent, observation in report.observation.items():
            row = self._rows[agent]
            row.observe(observation, report.mask.get(agent))
            self.requested.append((agent, row.group, row.at[1]))

    def finish(
        self,
        *,
        truncated: bool,
        last: Mapping[str, np.ndarray] | None = None,
        masks: Mapping[str, np.ndarray | bool] | None = None,
    ) -> None:
        """Ends the episode of all living agents. An episode in which no agent has acted is not counted.

        Args:
            last: last observations; default for an agent: the one of its last request.
            masks: action masks at the last observations; default for an agent: the one of its last request.
        """
        if self.has_acted:
            for agent in self.living:
                self._rows[agent].end(truncated, (last or {}).get(agent), (masks or {}).get(agent))
            self._done[self.env_index] = True
            self.episode += 1
        self.clear()


class _AgentRow:
    """One agent's row of one env, in numpy views of the step's buffers."""

    def __init__(self, group: str, agent_index: int, env_index: int, step: GroupStep) -> None:
        self.group, self.at = group, (env_index, agent_index)
        self.alive, self.acting = step.alive.numpy(), step.acting.numpy()
        self.reward = step.reward.numpy()
        self._observation, self._final = step.observation.numpy(), step.final_observation.numpy()
        self._terminated, self._truncated = step.terminated.numpy(), step.truncated.numpy()
        self._mask = None if step.action_mask is None else step.action_mask.numpy()
        self._final_mask = None if step.final_action_mask is None else step.final_action_mask.numpy()

    def start(self) -> None:
        self.alive[self.at] = True
        self._clear()

    def observe(self, observation: np.ndarray, mask: np.ndarray | None) -> None:
        self._observation[self.at] = observation
        self.acting[self.at] = True
        if self._mask is not None:
            self._mask[self.at] = True if mask is None else mask

    def end(self, truncated: bool, last: np.ndarray | None, mask: np.ndarray | bool | None) -> None:
        self._final[self.at] = self._observation[self.at] if last is None else last
        if self._mask is not None and self._final_mask is not None:
            self._final_mask[self.at] = self._mask[self.at] if mask is None else mask
        (self._truncated if truncated else self._terminated)[self.at] = True
        self.alive[self.at] = False
        self._clear()

    def _clear(self) -> None:
        self._observation[self.at] = 0
        self.acting[self.at] = False
        if self._mask is not None:
            self._mask[self.at] = True


def agents_of(spec: EnvSpec) -> dict[str, Agent]:
    """The description of each agent that simulators receive."""
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


def check_report(
    message: Message, agents: Mapping[str, Agent], slot: EpisodeSlot, *, needs_observations: bool
) -> Report:
    """A request as a Report.

    Raises:
        InvalidReport: an unknown agent, one whose episode has ended, or a shape or value that its group does not allow.
    """
    living = slot.living
    report = Report(
        rewards=_by_agent(message, "rewards", living, _reward),
        ended=_by_agent(message, "ended", living, _flag),
        truncated=_flag("the episode", message.header.get("truncated", False)),
    )
    if report.ended and not slot.has_acted:
        raise InvalidReport(f"end of {sorted(report.ended)[0]!r}: no agent has acted in this episode yet")
    for (kind, name), array in message.arrays.items():
        if name not in agents:
            raise InvalidReport(f"{kind} of {name!r}: no such agent; valid: {', '.join(agents)}")
        if name not in living or (not kind.startswith("final") and name in report.ended):
            raise InvalidReport(f"{kind} of {name!r}: its episode has ended; alive: {', '.join(living)}")
        if kind == "observation" and needs_observations:
            report.observation[name] = agents[name].observation(array)
        elif kind == "mask" and needs_observations:
            report.mask[name] = agents[name].mask(array)
        elif kind == "final":
            report.final[name] = agents[name].observation(array)
        elif kind == "final_mask":
            report.final_mask[name] = agents[name].mask(array)
        else:
            raise InvalidReport(f"{kind} of {name!r} does not belong in {message.op!r}")
    if needs_observations and not report.observation:
        raise InvalidReport("a request needs the observation of at least one agent")
    if idle := set(report.mask) - set(report.observation):
        raise InvalidReport(f"action mask of {sorted(idle)[0]!r}, which has no observation in this request")
    return report


def _by_agent(message: Message, key: str, living: list[str], read: Callable[[str, Any], Any]) -> dict[str, Any]:
    values = message.header.get(key, {})
    if not isinstance(values, dict):
        raise InvalidReport(f"{key} must be by agent; got {str(values)[:80]}")
    for name in values:
        if name not in living:
            raise InvalidReport(f"{key} of {name!r}, which is not alive; alive: {', '.join(living)}")
    return {name: read(name, value) for name, value in values.items()}


def _reward(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_REWARD <= value <= MAX_REWARD:
        raise InvalidReport(f"reward of {name!r}: got {str(value)[:80]}; expected a number of at most ±{MAX_REWARD:g}")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidReport(f"whether {name!r} was truncated: got {str(value)[:80]}; expected true or false")
    return value

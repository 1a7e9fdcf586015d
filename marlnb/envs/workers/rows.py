"""One group's rows of one copy: the actions that are read, and what comes of them written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from marlnb.envs.workers.memory import GroupArrays
from marlnb.envs.workers.source import Codecs
from marlnb.envs.workers.spaces import MASK, ObservationCodec, mask_array
from marlnb.errors import EnvError
from marlnb.specs import GroupSpec


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
                try:
                    for agent, row, _ in self.rows:
                        row[...] = observations[agent]
                except KeyError:
                    raise EnvError(_unseen(agent)) from None
                except (TypeError, ValueError) as error:
                    codec = self.rows[self.agents.index(agent)][2]
                    raise _unreadable(agent, codec, observations[agent], error) from error
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
                    self._see(i, observations[agent], self.final_rows[i])

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
                raise EnvError(_unseen(agent))
            else:
                codec.check(agent, observations[agent])
        self._observe(observations, infos)

    def _observe(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        for i in self.present:
            agent, row, codec = self.rows[i]
            if agent not in observations:
                raise EnvError(_unseen(agent))
            value = observations[agent]
            self._see(i, value, row)
            if self.mask is not None:
                self._write_mask(i, value[MASK] if codec.mask_inside else infos.get(agent, {}).get(MASK))

    def _see(self, i: int, value: Any, row: np.ndarray) -> None:
        agent, _, codec = self.rows[i]
        try:
            codec.write(value, row)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise _unreadable(agent, codec, value, error) from error

    def _write_mask(self, i: int, mask: Any) -> None:
        """An agent without any choice is waiting: alive, not acting, and its mask reads all True."""
        assert self.mask is not None
        allowed = np.True_ if mask is None else mask_array(mask, self.n_logits)
        may_act = bool(allowed.any())
        self.acting[i] = may_act
        self.mask[i] = allowed if may_act else True

    def take_turns(self, acting: Collection[str]) -> None:
        """Of those who live, only these act now; the masks of the others read all True.

        Raises:
            EnvError: one of them is allowed no choice.
        """
        for i in self.present:
            agent = self.agents[i]
            if agent not in acting:
                self.acting[i] = False
                if self.mask is not None:
                    self.mask[i] = True
            elif self.mask is None:
                self.acting[i] = True
            elif not self.acting[i]:
                raise EnvError(f"it is the turn of agent {agent!r}, and its action mask allows no choice")


def _unreadable(agent: str, codec: ObservationCodec, value: Any, error: Exception) -> EnvError:
    """An observation that is not of the agent's space."""
    try:
        codec.check(agent, value)  # its shape, in plain words
    except EnvError as told:
        return told
    except Exception:  # it has none
        pass
    return EnvError(
        f"agent {agent!r} observed a {type(value).__name__} that is not in its observation_space: "
        f"{type(error).__name__}: {error}"
    )


def _unseen(agent: str) -> str:
    return (
        f"agent {agent!r} is in env.agents but was given no observation; if agents act at different rates, "
        "agents_wait=True lets those that are missing wait"
    )

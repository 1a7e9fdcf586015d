"""One group's rows of one env: reads actions, and writes observations, rewards and ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from marlnb.envs.workers.api import no_observation
from marlnb.envs.workers.memory import GroupArrays
from marlnb.envs.workers.source import Codecs
from marlnb.envs.workers.spaces import MASK, mask_array
from marlnb.errors import EnvError
from marlnb.specs import GroupSpec


class GroupRows:
    """One group's rows of one env."""

    def __init__(self, spec: GroupSpec, arrays: GroupArrays, index: int, codecs: Codecs) -> None:
        self.agents, self.n_logits = spec.agents, spec.action.n_logits
        self.first_logits = np.cumsum((0, *spec.action.n[:-1]))  # of each component
        self.action, self.reward = arrays.action[index], arrays.reward[index]
        self.alive, self.acting = arrays.alive[index], arrays.acting[index]
        self.terminated, self.truncated = arrays.terminated[index], arrays.truncated[index]
        self.mask = None if arrays.action_mask is None else arrays.action_mask[index]
        self.final_mask = None if arrays.final_action_mask is None else arrays.final_action_mask[index]
        self.rows = [
            (agent, arrays.observation[index, i], codecs.observation[agent]) for i, agent in enumerate(spec.agents)
        ]
        self.final_rows = list(arrays.final_observation[index])
        self.action_spaces = [codecs.action[agent].space for agent in spec.agents]
        self.decoders = [codecs.action[agent].decode for agent in spec.agents]
        self.plain = all(codecs.observation[agent].is_plain for agent in spec.agents)
        self.present: list[int] = []
        self.all_present = False

    def read_actions(self, actions: dict[str, Any]) -> None:
        """Adds the actions of living agents; copied, because the environment may keep them."""
        block = self.action.copy()
        for i in self.present:
            actions[self.agents[i]] = self.decoders[i](block[i])

    def write(self, observations: Mapping[str, Any], rewards: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Writes a step at which no agent of this env appears or ends."""
        if self.mask is None and infos:
            self._check_no_masks(infos)
        if self.all_present:
            self.reward[:] = [rewards[agent] for agent in self.agents]
            if self.plain and self.mask is None:
                try:
                    for agent, row, _ in self.rows:
                        observation = observations.get(agent)
                        if getattr(observation, "shape", None) == row.shape:  # numpy would repeat a smaller one
                            row[...] = observation
                        else:
                            self._write_observation(self.agents.index(agent), observation, row)
                except (TypeError, ValueError) as error:
                    raise _invalid_observation(agent, error) from error
                return
        else:
            self.reward[:] = 0
            for i in self.present:
                self.reward[i] = rewards[self.agents[i]]
        self._write_observations(observations, infos)

    def write_ends(
        self,
        was_living: set[str],
        terminated: set[str],
        truncated: set[str],
        observations: Mapping[str, Any],
        rewards: Mapping[str, Any],
    ) -> None:
        """Writes a step at which some agent of this env appears or ends."""
        for i, agent in enumerate(self.agents):
            self.reward[i] = rewards.get(agent, 0.0) if agent in was_living else 0.0
            self.terminated[i] = agent in was_living and agent in terminated
            self.truncated[i] = agent in was_living and agent in truncated
            if self.terminated[i] or self.truncated[i]:
                if observations.get(agent) is None:
                    self.final_rows[i][...] = 0
                else:
                    self._write_observation(i, observations[agent], self.final_rows[i])

    def write_final_masks(
        self, observations: Mapping[str, Any], infos: Mapping[str, Any], acting: Collection[str]
    ) -> None:
        """Writes the choices that truncated agents would have had.

        Args:
            acting: the agents that would have acted next, if the others would have waited; else empty.
        """
        assert self.final_mask is not None
        for i in self.truncated.nonzero()[0]:
            agent, _, codec = self.rows[i]
            allowed = self._allowed(i, (observations if codec.mask_inside else infos).get(agent))
            waits = bool(acting) and agent not in acting
            self.final_mask[i] = True if waits or not self._has_choice(allowed) else allowed

    def set_living(self, living: set[str], observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Marks the living agents and writes their observations; rows of the others are zero."""
        self.present = [i for i, agent in enumerate(self.agents) if agent in living]
        self.all_present = len(self.present) == len(self.agents)
        for i, (agent, row, _) in enumerate(self.rows):
            self.alive[i] = self.acting[i] = agent in living
            if agent not in living:
                row[...] = 0
                if self.mask is not None:
                    self.mask[i] = True
        self._write_observations(observations, infos)
        if self.mask is None:
            self._check_no_masks(infos)

    def _check_no_masks(self, infos: Mapping[str, Any]) -> None:
        for i in self.present:
            if (info := infos.get(self.agents[i])) and MASK in info:
                raise EnvError(
                    f"agent {self.agents[i]!r} has an {MASK} in its info, but no agent of its group had one in the "
                    "first reset, which must show who has masks; put the masks into the observations instead"
                )

    def _write_observations(self, observations: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        for i in self.present:
            agent, row, codec = self.rows[i]
            value = observations.get(agent)
            self._write_observation(i, value, row)
            if self.mask is not None:
                self._write_mask(i, value if codec.mask_inside else infos.get(agent))

    def _write_observation(self, i: int, value: Any, row: np.ndarray) -> None:
        agent, _, codec = self.rows[i]
        if value is None:
            raise EnvError(no_observation(agent))
        try:
            codec.write(value, row)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise _invalid_observation(agent, error) from error

    def _write_mask(self, i: int, holder: Any) -> None:
        """An agent without any allowed choice waits: it is alive and not acting, and its mask is all True."""
        assert self.mask is not None
        allowed = self._allowed(i, holder)
        may_act = bool(allowed.any())
        if may_act and not self._has_choice(allowed):
            raise EnvError(f"the action mask of agent {self.agents[i]!r} allows no choice of a component")
        self.acting[i] = may_act
        self.mask[i] = allowed if may_act else True

    def _allowed(self, i: int, holder: Any) -> np.ndarray:
        """`[n_logits]` bool, the mask in an observation or info of agent i; all True if there is none."""
        mask = holder.get(MASK) if holder else None
        if mask is None:
            return np.ones(self.n_logits, bool)
        try:
            return mask_array(mask, self.action_spaces[i], self.n_logits)
        except (EnvError, TypeError, ValueError) as error:
            raise EnvError(f"agent {self.agents[i]!r}: {error}") from error

    def _has_choice(self, allowed: np.ndarray) -> bool:
        """Whether each component has an allowed choice."""
        if len(self.first_logits) == 1:
            return bool(allowed.any())
        return bool(np.logical_or.reduceat(allowed, self.first_logits).all())

    def set_acting(self, acting: Collection[str], mask_may_forbid_all: bool) -> None:
        """Of the living agents only these act now; the masks of the others are all True.

        Args:
            acting: names of agents.
            mask_may_forbid_all: an agent whose mask allows no choice waits as well.
        Raises:
            EnvError: the mask of an acting agent allows no choice, and none may.
        """
        for i in self.present:
            agent = self.agents[i]
            if agent not in acting:
                self.acting[i] = False
                if self.mask is not None:
                    self.mask[i] = True
            elif self.mask is None:
                self.acting[i] = True
            elif not self.acting[i] and not mask_may_forbid_all:
                raise EnvError(f"agent {agent!r} must act, but its action mask allows no choice")


def _invalid_observation(agent: str, error: Exception) -> EnvError:
    """The error for an observation that is not in the agent's space."""
    problem = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return EnvError(f"agent {agent!r} observed {problem}")

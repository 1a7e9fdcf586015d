"""A game of turns whose values are known: a player echoes the sign it sees, and is paid at the other's move."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from marlnb.envs.vector import GroupStep, Step, VectorEnv, allocate_step, episode_seeds
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

LENGTH = 4


class Echo(VectorEnv):
    """Players 0, 1, 0, 1 move; a player observes (sign shown, 1 at its second turn).

    A player that answers 1 to a positive sign and 0 to a negative one is paid 1 at the next step, the last mover at
    once. A waiting player sees (-sign of the other, the other's second turn), which it must not learn from.
    Perfect play from a first turn is worth 1 + gamma, from a second turn 1.
    """

    def __init__(self, n_envs: int, apart: bool = False) -> None:
        self.n_envs, self.device = n_envs, torch.device("cpu")
        observation, action = ObservationSpec((2,)), ActionSpec("discrete", (2,))
        names = (("a", ("a_0",)), ("b", ("b_0",))) if apart else (("a", ("a_0", "a_1")),)
        groups = tuple(GroupSpec(name, agents, observation, action) for name, agents in names)
        self.spec = EnvSpec("test/echo", groups, simultaneous=False)
        self._step = allocate_step(self.spec, n_envs, "cpu")

    def reset(self, seed: int) -> Step:
        self._seed, self._episode = seed, torch.zeros(self.n_envs, dtype=torch.int64)
        self._t, self._owed = torch.zeros(self.n_envs, dtype=torch.int64), torch.zeros(self.n_envs)
        for group in self._step.groups.values():
            for flag in (group.reward, group.terminated, group.truncated):
                flag.zero_()
        self._step.done.zero_()
        return self._show()

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        action = torch.cat(list(actions.values()), 1)
        envs, mover = torch.arange(self.n_envs), self._t % 2
        right = (action[envs, mover] == (self._signs() > 0).long()).float()
        done = self._t == LENGTH - 1
        reward = torch.zeros(self.n_envs, 2)
        reward[envs, 1 - mover] = self._owed
        reward[envs, mover] += right * done
        self._owed = right * ~done
        self._t = torch.where(done, 0, self._t + 1)
        self._episode = self._episode + done
        for group, at in self._parts():
            group.reward.copy_(reward[:, at])
            group.terminated.copy_(done[:, None].expand_as(group.terminated))
            group.final_observation.fill_(7.0)
        self._step.done.copy_(done)
        return self._show()

    def _parts(self) -> list[tuple[GroupStep, slice]]:
        parts = list(self._step.groups.values())
        return [(parts[0], slice(0, 2))] if len(parts) == 1 else [(parts[0], slice(0, 1)), (parts[1], slice(1, 2))]

    def _signs(self) -> Tensor:
        seeds = episode_seeds(self._seed, self._episode)
        return ((seeds // 2**self._t) % 2) * 2.0 - 1

    def _show(self) -> Step:
        sign, second = self._signs(), (self._t >= 2).float()
        turn = torch.stack((self._t % 2 == 0, self._t % 2 == 1), 1)
        seen = torch.stack((torch.where(turn, sign[:, None], -sign[:, None]), second[:, None].expand(-1, 2)), -1)
        for group, at in self._parts():
            group.observation.copy_(seen[:, at])
            group.acting.copy_(turn[:, at])
        self._step.episode_seed.copy_(episode_seeds(self._seed, self._episode))
        return self._step

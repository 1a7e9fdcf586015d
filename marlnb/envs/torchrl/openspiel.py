"""OpenSpiel's games through torchrl's wrapper, with two of its answers put right."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.envs import OpenSpielEnv


class Game(OpenSpielEnv):  # type: ignore[misc]
    """A game of OpenSpiel.

    torchrl 0.14's wrapper gives at each step the sum of the rewards so far where the step's own belong, and in games in
    which players move at once forbids them all but action 0.
    """

    _before: list[float]

    def _make_td_out(self, exclude_reward: bool = False) -> TensorDictBase:
        out = super()._make_td_out(exclude_reward)
        returns = [0.0] * len(self.agent_names) if exclude_reward else self._env.returns()
        if not exclude_reward:
            for group, agents in self.group_map.items():
                places = [self.agent_names_to_indices_map[agent] for agent in agents]
                rewards = [returns[place] - self._before[place] for place in places]
                out.set((group, "reward"), torch.tensor(rewards, device=self.device)[:, None])
        self._before = returns
        return out

    def _update_action_mask(self) -> None:
        if not self.parallel or self._env.is_terminal():
            super()._update_action_mask()
            return
        for group, agents in self.group_map.items():
            mask = torch.zeros(len(agents), self._env.num_distinct_actions(), dtype=torch.bool, device=self.device)
            for row, agent in zip(mask, agents):
                row[self._env.legal_actions(self.agent_names_to_indices_map[agent])] = True
            self.full_action_spec[group, "action"].update_mask(mask)

    def _step_parallel(self, tensordict: TensorDictBase) -> None:
        actions: list[Any] = [0] * self._env.num_players()
        for group, agents in self.group_map.items():
            chosen = self._get_action_from_tensor(tensordict[group, "action"])
            for agent, action in zip(agents, chosen.tolist()):
                actions[self.agent_names_to_indices_map[agent]] = int(action)
        self._env.apply_actions(actions)

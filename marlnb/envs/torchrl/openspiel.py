"""OpenSpiel's games through torchrl's wrapper, with their parameters by name, and two of its answers put right."""

from __future__ import annotations

from typing import Any

import pyspiel
import torch
from tensordict import TensorDictBase
from torchrl.envs import OpenSpielEnv

from marlnb.errors import EnvBuildError, unknown
from marlnb.values import describe

_OF_WRAPPER = ("group_map", "return_state", "device")


def make(name: str, **kwargs: Any) -> Game:
    """A game with parameters of its own, as `players=3` of `kuhn_poker`.

    Args:
        kwargs: the game's parameters, or torchrl's `group_map`, `return_state`, `device`.
    Raises:
        EnvBuildError: the game has no such parameter, or takes no such value for it.
    """
    where = f"openspiel/{name}"
    defaults = next(game for game in pyspiel.registered_games() if game.short_name == name).parameter_specification
    given = {key: value for key, value in kwargs.items() if key not in _OF_WRAPPER}
    for key, value in given.items():
        if key not in defaults:
            raise EnvBuildError(f"{where}: the game has {unknown('parameter', key, defaults)}")
        kind = type(defaults[key])
        if kind is float and type(value) is int:
            given[key] = float(value)
        elif type(value) is not kind:
            raise EnvBuildError(f"{where}: its parameter {key} must be {describe(kind)}; got {value!r}")
    try:
        written = str(pyspiel.load_game(name, given)) if given else name
    except pyspiel.SpielError as error:
        raise EnvBuildError(f"{where} refuses {given}: {error}") from error
    return Game(written, **{key: value for key, value in kwargs.items() if key not in given})


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

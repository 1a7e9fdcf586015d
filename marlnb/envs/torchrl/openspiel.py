"""OpenSpiel's games through torchrl's wrapper, with game parameters, and with two of the wrapper's bugs fixed."""

from __future__ import annotations

from typing import Any

import pyspiel
import torch
from tensordict import TensorDictBase
from torchrl.envs import OpenSpielEnv

from marlnb.errors import EnvBuildError, unknown
from marlnb.values import describe

_WRAPPER_ARGUMENTS = ("group_map", "return_state", "device")


def make(name: str, **kwargs: Any) -> Game:
    """A game with parameters, such as `players=3` of `kuhn_poker`.

    Args:
        name: OpenSpiel's name of the game.
        kwargs: the game's parameters, or torchrl's `group_map`, `return_state`, `device`.
    Raises:
        EnvBuildError: an unknown parameter, or a value that the game rejects.
    """
    where = f"openspiel/{name}"
    defaults = next(game for game in pyspiel.registered_games() if game.short_name == name).parameter_specification
    parameters = {key: value for key, value in kwargs.items() if key not in _WRAPPER_ARGUMENTS}
    for key, value in parameters.items():
        if key not in defaults:
            raise EnvBuildError(f"{where}: the game has {unknown('parameter', key, defaults)}")
        kind = type(defaults[key])
        if kind is float and type(value) is int:
            parameters[key] = float(value)
        elif type(value) is not kind:
            raise EnvBuildError(f"{where}: its parameter {key} must be {describe(kind)}; got {value!r}")
    try:
        game_text = str(pyspiel.load_game(name, parameters)) if parameters else name
    except pyspiel.SpielError as error:
        raise EnvBuildError(f"{where} rejects {parameters}: {error}") from error
    return Game(game_text, **{key: value for key, value in kwargs.items() if key not in parameters})


class Game(OpenSpielEnv):  # type: ignore[misc]
    """A game of OpenSpiel.

    torchrl 0.14's wrapper returns the sum of all rewards so far instead of the step's reward. In games with
    simultaneous moves it masks every action except 0. This class corrects both.
    """

    _previous_returns: list[float]

    def _make_td_out(self, exclude_reward: bool = False) -> TensorDictBase:
        out = super()._make_td_out(exclude_reward)
        returns = [0.0] * len(self.agent_names) if exclude_reward else self._env.returns()
        if not exclude_reward:
            for group, agents in self.group_map.items():
                players = [self.agent_names_to_indices_map[agent] for agent in agents]
                rewards = [returns[player] - self._previous_returns[player] for player in players]
                out.set((group, "reward"), torch.tensor(rewards, device=self.device)[:, None])
        self._previous_returns = returns
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

"""The rules of the matrix games."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.envs.games.config import GameConfig, Payoffs
from marlnb.envs.games.game import Game, Outcome
from marlnb.specs import EnvSpec


class OneShot(Game):
    """One payoff matrix, one step."""

    def __init__(self, config: GameConfig, spec: EnvSpec, payoffs: Payoffs, n_envs: int, device: str) -> None:
        super().__init__(config, spec, n_envs, device)
        self.payoffs = torch.tensor(payoffs, device=self.device)
        self.identity = torch.eye(2, device=self.device).expand(n_envs, 2, 2)

    def play(self, action: Tensor) -> Outcome:
        reward = self.payoffs[action[:, 0], action[:, 1]]
        terminated = torch.ones_like(self.alive)
        return Outcome(reward[:, None].expand(-1, 2), terminated, ~terminated)

    def observe(self) -> Tensor:
        return self.identity


class TwoStep(Game):
    """Two steps; the first choice of agent_0 selects the payoff matrix of the second step.

    Memory: `place` `[env]`: 0 at the start, 1 in the safe game, 2 in the risky game.
    """

    def __init__(
        self, config: GameConfig, spec: EnvSpec, safe: Payoffs, risky: Payoffs, n_envs: int, device: str
    ) -> None:
        super().__init__(config, spec, n_envs, device)
        start = ((0.0, 0.0), (0.0, 0.0))
        self.payoffs = torch.tensor((start, safe, risky), device=self.device)
        self.identity = torch.eye(2, device=self.device).expand(n_envs, 2, 2)
        self.one_hot_place = torch.eye(3, device=self.device)

    def initial_memory(self) -> dict[str, Tensor]:
        return {"place": torch.zeros_like(self.clock)}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        self.memory["place"].masked_fill_(starting, 0)

    def play(self, action: Tensor) -> Outcome:
        place = self.memory["place"]
        reward = self.payoffs[place, action[:, 0], action[:, 1]]
        terminated = (place > 0)[:, None].expand(-1, 2)
        self.memory["place"] = torch.where(place == 0, 1 + action[:, 0], place)
        return Outcome(reward[:, None].expand(-1, 2), terminated, torch.zeros_like(self.alive))

    def observe(self) -> Tensor:
        place = self.one_hot_place[self.memory["place"]]
        return torch.cat((place[:, None].expand(-1, 2, -1), self.identity), -1)

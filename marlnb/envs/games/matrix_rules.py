"""The rules of the matrix games."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.envs.games.game import Game, Outcome
from marlnb.envs.games.matrix import OneShotConfig, TwoStepConfig
from marlnb.specs import EnvSpec


class OneShot(Game):
    """One matrix, one step."""

    def __init__(self, config: OneShotConfig, spec: EnvSpec, n_envs: int, device: str) -> None:
        super().__init__(config, spec, n_envs, device)
        self.payoffs = torch.tensor(config.payoffs, device=self.device)
        self.who = torch.eye(2, device=self.device).expand(n_envs, 2, 2)

    def remember(self) -> dict[str, Tensor]:
        return {}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        pass

    def play(self, action: Tensor) -> Outcome:
        paid = self.payoffs[action[:, 0], action[:, 1]]
        ended = torch.ones_like(self.alive)
        return Outcome(paid[:, None].expand(-1, 2), ended, ~ended)

    def look(self) -> Tensor:
        return self.who


class TwoStep(Game):
    """`place` `[env]`: 0 at the start, 1 where 7 is certain, 2 where coordination pays."""

    def __init__(self, config: TwoStepConfig, spec: EnvSpec, n_envs: int, device: str) -> None:
        super().__init__(config, spec, n_envs, device)
        nothing = ((0.0, 0.0), (0.0, 0.0))
        self.payoffs = torch.tensor((nothing, config.safe_payoffs, config.risky_payoffs), device=self.device)
        self.who = torch.eye(2, device=self.device).expand(n_envs, 2, 2)
        self.places = torch.eye(3, device=self.device)

    def remember(self) -> dict[str, Tensor]:
        return {"place": torch.zeros_like(self.clock)}

    def begin(self, copies: Tensor, drawn: Tensor) -> None:
        self.memory["place"].masked_fill_(copies, 0)

    def play(self, action: Tensor) -> Outcome:
        place = self.memory["place"]
        paid = self.payoffs[place, action[:, 0], action[:, 1]]
        ended = (place > 0)[:, None].expand(-1, 2)
        self.memory["place"] = torch.where(place == 0, 1 + action[:, 0], place)
        return Outcome(paid[:, None].expand(-1, 2), ended, torch.zeros_like(self.alive))

    def look(self) -> Tensor:
        place = self.places[self.memory["place"]]
        return torch.cat((place[:, None].expand(-1, 2, -1), self.who), -1)

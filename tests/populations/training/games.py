"""Small competitive games for the tests of leagues."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from marlnb.config import EnvConfig, option
from marlnb.envs.games.config import GameConfig, numbered
from marlnb.envs.games.game import Game, Outcome
from marlnb.specs import ActionSpec


@dataclass(frozen=True)
class RockPaperScissors(EnvConfig):
    """Rock, paper, scissors, several times in an episode. Agents see the step alone."""

    name = "tests.populations.training.games:RockPaperScissors"

    steps: int = option(1, help="steps of an episode", ge=1)

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        spec = GameConfig.game_spec(
            self,  # type: ignore[arg-type]
            agents=numbered("player", 2),
            features=("step", "is_player_1"),
            action=ActionSpec("discrete", n=(3,)),
            max_steps=self.steps,
        )
        return _Rules(self, spec, n_envs, device)  # type: ignore[arg-type]

    state = False


class _Rules(Game):
    def play(self, action: Tensor) -> Outcome:
        difference = (action[:, 0] - action[:, 1]) % 3  # 1: player_0 wins, 2: it loses
        first = (difference == 1).float() - (difference == 2).float()
        reward = torch.stack((first, -first), 1)
        ends = (self.clock + 1 >= self.spec.max_steps)[:, None].expand_as(self.alive)
        return Outcome(reward, ends, torch.zeros_like(ends))

    def observe(self) -> Tensor:
        step = self.clock[:, None].expand(-1, 2).float()
        return torch.stack((step, torch.tensor([[0.0, 1.0]]).expand_as(step)), -1)


@dataclass(frozen=True)
class Majority(EnvConfig):
    """Three players choose 0 or 1 once. One whose choice is its own pays 1 to each of the others."""

    name = "tests.populations.training.games:Majority"

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        spec = GameConfig.game_spec(
            self,  # type: ignore[arg-type]
            agents=numbered("player", 3),
            features=("nothing",),
            action=ActionSpec("discrete", n=(2,)),
            max_steps=1,
        )
        return _MajorityRules(self, spec, n_envs, device)  # type: ignore[arg-type]

    state = False


class _MajorityRules(Game):
    def play(self, action: Tensor) -> Outcome:
        alone = ((action[:, :, None] != action[:, None]).sum(-1) == 2).float()
        reward = alone.amax(1, keepdim=True) - 3 * alone
        ends = torch.ones_like(self.alive)
        return Outcome(reward, ends, torch.zeros_like(ends))

    def observe(self) -> Tensor:
        return torch.zeros(*self.clock.shape, 3, 1)


def choose_0(observation: Tensor, *_: object) -> Tensor:
    return torch.zeros(observation.shape[:-1], dtype=torch.int64)


def choose_1(observation: Tensor, *_: object) -> Tensor:
    return torch.ones(observation.shape[:-1], dtype=torch.int64)

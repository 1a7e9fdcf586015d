"""Guard: a game that player_0 loses exactly if it does not guard (action 1) at the step at which there is danger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.games.config import GameConfig, numbered
from marlnb.envs.games.game import Game, Outcome
from marlnb.specs import ActionSpec

STEPS, DANGEROUS_STEP = 4, 2


@dataclass(frozen=True)
class Guard(EnvConfig):
    """Four steps; in half of the episodes both players see danger at step 2."""

    name = "tests.analysis.populations.guard:Guard"
    state = False

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        spec = GameConfig.game_spec(
            self,  # type: ignore[arg-type]
            agents=numbered("player", 2),
            features=("danger", "is_player_1"),
            action=ActionSpec("discrete", n=(6,)),
            max_steps=STEPS,
        )
        return _Rules(self, spec, n_envs, device)


class _Rules(Game):
    n_draws = 1

    def initial_memory(self) -> dict[str, Tensor]:
        false = torch.zeros(self.n_envs, dtype=torch.bool)
        return {"danger": false, "hit": false.clone()}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        self.memory: Mapping[str, Tensor] = {
            "danger": torch.where(starting, drawn[0] < 0.5, self.memory["danger"]),
            "hit": self.memory["hit"] & ~starting,
        }

    def play(self, action: Tensor) -> Outcome:
        hit = self.memory["danger"] & (self.clock == DANGEROUS_STEP) & (action[:, 0] != 1)
        self.memory = {**self.memory, "hit": self.memory["hit"] | hit}
        ends = self.clock + 1 >= STEPS
        first = torch.where(ends, 1.0 - 2.0 * self.memory["hit"].float(), torch.zeros(self.n_envs))
        over = ends[:, None].expand_as(self.alive)
        return Outcome(torch.stack((first, -first), 1), over, torch.zeros_like(over))

    def observe(self) -> Tensor:
        danger = (self.memory["danger"] & (self.clock == DANGEROUS_STEP)).float()[:, None].expand(-1, 2)
        return torch.stack((danger, torch.tensor([[0.0, 1.0]]).expand_as(danger)), -1)

"""Ambush: a game in which an exploiter must learn where and when the defender does not look."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from marlnb.config import EnvConfig
from marlnb.envs.games.config import GameConfig, numbered
from marlnb.envs.games.game import Game, Outcome
from marlnb.specs import ActionSpec

STEPS, AMBUSH_STEP, N_PLACES = 4, 2, 3


@dataclass(frozen=True)
class Ambush(EnvConfig):
    """Four steps; at step 2 both players see a place. player_1 wins exactly if it goes there and player_0 does not.

    At other steps they see a place too, which means nothing.
    """

    name = "tests.analysis.populations.ambush:Ambush"
    state = False

    def build(self, n_envs: int, device: str = "cpu") -> Game:
        spec = GameConfig.game_spec(
            self,  # type: ignore[arg-type]
            agents=numbered("player", 2),
            features=("place_0", "place_1", "place_2", "is_step_2", "is_player_1"),
            action=ActionSpec("discrete", n=(N_PLACES,)),
            max_steps=STEPS,
        )
        return _Rules(self, spec, n_envs, device)  # type: ignore[arg-type]


class _Rules(Game):
    n_draws = STEPS

    def initial_memory(self) -> dict[str, Tensor]:
        return {
            "places": torch.zeros(self.n_envs, STEPS, dtype=torch.int64),
            "ambushed": torch.zeros(self.n_envs, dtype=torch.bool),
        }

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        places, ambushed = self.memory["places"], self.memory["ambushed"]
        places.copy_(torch.where(starting[:, None], (N_PLACES * drawn.mT).long(), places))
        ambushed.masked_fill_(starting, False)

    def play(self, action: Tensor) -> Outcome:
        place = self._place()
        self.memory["ambushed"] |= (self.clock == AMBUSH_STEP) & (action[:, 1] == place) & (action[:, 0] != place)
        ends = self.clock + 1 >= STEPS
        first = torch.where(ends, 1.0 - 2.0 * self.memory["ambushed"].float(), torch.zeros(self.n_envs))
        over = ends[:, None].expand_as(self.alive)
        return Outcome(torch.stack((first, -first), 1), over, torch.zeros_like(over))

    def observe(self) -> Tensor:
        seen = F.one_hot(self._place(), N_PLACES).float()[:, None].expand(-1, 2, -1)
        is_step = (self.clock == AMBUSH_STEP).float()[:, None, None].expand(-1, 2, 1)
        return torch.cat((seen, is_step, torch.eye(2)[None, :, 1:].expand(self.n_envs, -1, -1)), -1)

    def _place(self) -> Tensor:
        return self.memory["places"].gather(1, self.clock.clamp(max=STEPS - 1)[:, None])[:, 0]

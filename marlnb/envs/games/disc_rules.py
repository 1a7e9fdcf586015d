"""The rules of the disc game.

    reward of player_0 = sin(a_0 - a_1) + strength (cos(a_0 - h) - cos(a_1 - h)),    of player_1: the opposite

a_i = 2 pi k_i / directions is the direction that player i chooses, and h the hidden angle of the episode. Both players
observe (cos u, sin u, cos v, sin v) of two angles whose sum is h, so no linear function of the observation says
anything about h. Of a player whose choices follow h, with the point p = E[(cos(a - h), sin(a - h))],

    E[reward of player i against player j] = strength (p_ix - p_jx) + (p_iy p_jx - p_ix p_jy)

The first part is transitive, and a rating; the second is a cycle, whatever the ratings.

Source: Balduzzi et al. 2019, "Open-ended learning in symmetric zero-sum games", section 2 (arXiv:1901.08106), for the
disc game; Czarnecki et al. 2020 (arXiv:2004.09468) for games with both parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.config import EnvConfig
from marlnb.envs.games.game import Game, Outcome
from marlnb.specs import EnvSpec

TURN = 2 * torch.pi


class Disc(Game):
    """B envs of the disc game. Memory: `angles` `[env, 2]`, u and v."""

    n_draws = 2

    def __init__(
        self, config: EnvConfig, spec: EnvSpec, n_envs: int, device: str = "cpu", *, directions: int, strength: float
    ) -> None:
        self._step_angle, self._strength = TURN / directions, strength
        super().__init__(config, spec, n_envs, device)

    @property
    def hidden(self) -> Tensor:
        """The hidden angle `[env]`, in [0, 2 pi)."""
        return self.memory["angles"].sum(1) % TURN

    def initial_memory(self) -> dict[str, Tensor]:
        return {"angles": torch.zeros(self.n_envs, 2, device=self.device)}

    def begin(self, starting: Tensor, drawn: Tensor) -> None:
        angles = self.memory["angles"]
        angles.copy_(torch.where(starting[:, None], TURN * drawn.mT, angles))

    def play(self, action: Tensor) -> Outcome:
        direction = self._step_angle * action  # [env, agent]
        strong = self._strength * torch.cos(direction - self.hidden[:, None])
        first = torch.sin(direction[:, 0] - direction[:, 1]) + strong[:, 0] - strong[:, 1]
        over = torch.ones_like(self.alive)
        return Outcome(torch.stack((first, -first), 1), over, ~over)

    def observe(self) -> Tensor:
        angles = self.memory["angles"]
        observed = torch.stack((angles.cos(), angles.sin()), -1).flatten(1)  # [env, feature]
        return observed[:, None].expand(-1, self.group.n_agents, -1)

    def labels(self) -> dict[str, Tensor]:
        """hidden_cos and hidden_sin, each `[env]`: of the hidden angle."""
        return {"hidden_cos": self.hidden.cos(), "hidden_sin": self.hidden.sin()}

"""The rules of the matrix games."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.envs.games.config import Payoffs
from marlnb.envs.tensor.philox import Draws
from marlnb.envs.tensor.rules import TIME, ByGroup, Rules, State
from marlnb.specs import EnvSpec


class MatrixRules(Rules):
    """Both agents choose, and earn the same. They observe which of the two they are.

    Args:
        spec: of the game; one group of two agents.
        payoffs: `[..., row, column]`.
        device: of the game.
    """

    fixed_start = True

    def __init__(self, spec: EnvSpec, payoffs: tuple[Payoffs, ...] | Payoffs, device: torch.device) -> None:
        self.spec, self.group = spec, spec.group_names[0]
        self.payoffs = torch.tensor(payoffs, device=device)
        self.identity = torch.eye(2, device=device)

    def shared(self, reward: Tensor) -> ByGroup:
        """`[env]`, the reward of each agent."""
        return {self.group: reward[:, None].expand(-1, 2)}


class OneShot(MatrixRules):
    """One payoff matrix, one step."""

    def start(self, draw: Draws) -> State:
        return {}

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        row, column = action[self.group].unbind(1)
        return {}, self.shared(self.payoffs[row, column])

    def terminated(self, state: State) -> Tensor:
        return state[TIME] == 1

    def observe(self, state: State) -> ByGroup:
        return {self.group: self.identity.expand(len(state[TIME]), 2, 2)}


class TwoStep(MatrixRules):
    """Two steps; the first choice of agent_0 selects the payoff matrix of the second step.

    State: `place` `[env]`: 0 at the start, 1 in the safe game, 2 in the risky game.
    """

    def __init__(self, spec: EnvSpec, safe: Payoffs, risky: Payoffs, device: torch.device) -> None:
        super().__init__(spec, (((0.0, 0.0), (0.0, 0.0)), safe, risky), device)
        self.one_hot_place = torch.eye(3, device=device)

    def start(self, draw: Draws) -> State:
        return {"place": torch.zeros_like(draw.seed)}

    def step(self, state: State, action: ByGroup, draw: Draws) -> tuple[State, ByGroup]:
        place, (row, column) = state["place"], action[self.group].unbind(1)
        return {"place": torch.where(place == 0, 1 + row, place)}, self.shared(self.payoffs[place, row, column])

    def terminated(self, state: State) -> Tensor:
        return state[TIME] == 2

    def observe(self, state: State) -> ByGroup:
        place = self.one_hot_place[state["place"]][:, None].expand(-1, 2, -1)
        return {self.group: torch.cat((place, self.identity.expand(len(place), 2, 2)), -1)}

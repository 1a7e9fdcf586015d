"""GRU: hidden layers, a gated recurrent unit for each agent and a head; registered as `gru`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from marlnb.config import MODELS
from marlnb.models.hooks.sites import SiteKind
from marlnb.models.networks.layers import AgentGRUCell, AgentLinear
from marlnb.models.networks.mlp import hidden_layers, hidden_sites
from marlnb.models.networks.network import Network
from marlnb.models.networks.recurrent import RecurrentConfig


class GRU(Network):
    """Hidden layers, a recurrent layer and a linear head, each a site."""

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: GRUConfig) -> None:
        super().__init__()
        self.n_agents, self.in_features, self.out_features = n_agents, in_features, out_features
        self.recurrent_shape = (1, config.recurrent_size)
        self.hidden = hidden_layers(n_agents, in_features, config)
        width = config.hidden[-1] if config.hidden else in_features
        self.gru = AgentGRUCell(n_agents, width, config.recurrent_size, shared=config.share_parameters)
        self.head = AgentLinear(n_agents, config.recurrent_size, out_features, shared=config.share_parameters)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        projected = self._project(x)
        state = self._zeros(projected) if recurrent is None else recurrent.squeeze(-2)
        state = self.gru(projected, state)
        return self.head(state), state.unsqueeze(-2)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        projected = self._project(x)  # all steps in one matmul; only the recurrent part goes step by step
        state = self._zeros(projected[:, 0]) if recurrent is None else recurrent.squeeze(-2)
        keeps = (~is_init).to(state.dtype)[:, :, None, None].unbind(1)
        states = []
        for t, (step, keep) in enumerate(zip(projected.unbind(1), keeps)):
            entering = state * keep
            state = self.gru(step, entering)
            if acting is not None:
                state = torch.where(acting[:, t, :, None], state, entering)
            states.append(state)
        stacked = torch.stack(states, dim=1)
        return self.head(stacked), stacked.unsqueeze(-2)

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        units = self.gru.units
        return [
            *hidden_sites(self.hidden),
            ("gru", self.gru, units, "recurrent"),
            ("head", self.head, self.out_features, "head"),
        ]

    def _project(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = layer(x)
        return self.gru.project(x)

    def _zeros(self, projected: Tensor) -> Tensor:
        return projected.new_zeros(*projected.shape[:-1], self.gru.units)


@MODELS.register("gru")
@dataclass(frozen=True)
class GRUConfig(RecurrentConfig):
    """A recurrent network: hidden layers, then a gated recurrent unit."""

    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        return GRU(n_agents, in_features, out_features, self)

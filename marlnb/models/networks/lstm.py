"""LSTM: hidden layers, a long short-term memory for each agent and a head; registered as `lstm`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from marlnb.config import MODELS
from marlnb.models.hooks.sites import SiteKind
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.mlp import hidden_layers, hidden_sites
from marlnb.models.networks.network import Network
from marlnb.models.networks.recurrent import RecurrentConfig


class Memory(nn.Module):
    """The cell state after the step, `[..., n_agents, unit]`: c' = f * c + i * g. A site: an edit of it persists."""

    def forward(self, gates: Tensor, cell: Tensor) -> Tensor:
        """gates `[..., n_agents, 4 * unit]`, before their nonlinearities; cell `[..., n_agents, unit]`."""
        keep, candidate, write, _ = gates.chunk(4, dim=-1)
        return torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(candidate)


class Exposure(nn.Module):
    """The hidden state after the step, `[..., n_agents, unit]`: h' = o * tanh(c'). A site."""

    def forward(self, gates: Tensor, cell: Tensor) -> Tensor:
        return torch.sigmoid(gates.chunk(4, dim=-1)[3]) * torch.tanh(cell)


class AgentLSTMCell(nn.Module):
    """One step of a long short-term memory for each agent; equal to `nn.LSTMCell` agent by agent.

        f, i, o = sigmoid(W x + U h)    g = tanh(W_g x + U_g h)
        c' = f * c + i * g              h' = o * tanh(c')

    The gates' order is forget, candidate, input, output (torch's is input, forget, candidate, output). The forget
    gate's bias starts at 1.
    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000; the bias, Jozefowicz et al. 2015.
    """

    def __init__(self, n_agents: int, in_features: int, units: int, *, shared: bool) -> None:
        super().__init__()
        self.units = units
        self.input = AgentLinear(n_agents, in_features, 4 * units, shared=shared, blocks=4)
        self.state = AgentLinear(n_agents, units, 4 * units, shared=shared, blocks=4)
        self.memory, self.exposure = Memory(), Exposure()
        with torch.no_grad():
            self.input.bias[..., :units] = 1.0

    def forward(self, projected: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """projected `[..., n_agents, 4 * unit]`, hidden and cell `[..., n_agents, unit]` -> the next two."""
        gates = projected + self.state(hidden)
        cell = self.memory(gates, cell)
        return self.exposure(gates, cell), cell


class LSTM(Network):
    """Hidden layers, a recurrent layer and a linear head, each a site. The state is (hidden, cell)."""

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: LSTMConfig) -> None:
        super().__init__()
        self.n_agents, self.in_features, self.out_features = n_agents, in_features, out_features
        self.recurrent_shape = (2, config.recurrent_size)
        self.hidden = hidden_layers(n_agents, in_features, config)
        width = config.hidden[-1] if config.hidden else in_features
        self.lstm = AgentLSTMCell(n_agents, width, config.recurrent_size, shared=config.share_parameters)
        self.head = AgentLinear(n_agents, config.recurrent_size, out_features, shared=config.share_parameters)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        projected = self._project(x)
        hidden, cell = (self._zeros(projected) if recurrent is None else recurrent).unbind(-2)
        hidden, cell = self.lstm(projected, hidden, cell)
        return self.head(hidden), torch.stack((hidden, cell), dim=-2)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        projected = self._project(x)  # all steps in one matmul; only the recurrent part goes step by step
        state = self._zeros(projected[:, 0]) if recurrent is None else recurrent
        keeps = (~is_init).to(projected.dtype)[:, :, None, None, None].unbind(1)
        states = []
        for t, (step, keep) in enumerate(zip(projected.unbind(1), keeps)):
            entering = state * keep
            state = torch.stack(self.lstm(step, *entering.unbind(-2)), dim=-2)
            if acting is not None:
                state = torch.where(acting[:, t, :, None, None], state, entering)
            states.append(state)
        stacked = torch.stack(states, dim=1)
        return self.head(stacked[..., 0, :]), stacked

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        units = self.lstm.units
        return [
            *hidden_sites(self.hidden),
            ("cell", self.lstm.memory, units, "recurrent"),
            ("lstm", self.lstm.exposure, units, "recurrent"),
            ("head", self.head, self.out_features, "head"),
        ]

    def _project(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = layer(x)
        return self.lstm.input(x)

    def _zeros(self, projected: Tensor) -> Tensor:
        return projected.new_zeros(*projected.shape[:-1], 2, self.lstm.units)


@MODELS.register("lstm")
@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """A recurrent network: hidden layers, then a long short-term memory."""

    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        return LSTM(n_agents, in_features, out_features, self)

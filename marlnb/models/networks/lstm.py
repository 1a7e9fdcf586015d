"""LSTM: hidden layers, a long short-term memory for each agent and a head; registered as `lstm`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.recurrent import LSTMConfig as LSTMConfig
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.recurrent import RecurrentNetwork


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


class LSTM(RecurrentNetwork):
    """Hidden layers, a long short-term memory and a linear head. The state is (hidden, cell)."""

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: LSTMConfig) -> None:
        super().__init__(n_agents, in_features, out_features, config)
        units, width = config.recurrent_size, self.add_hidden(in_features)
        self.recurrent_shape = (2, units)
        self.lstm = AgentLSTMCell(n_agents, width, units, shared=config.share_parameters)
        self.add_head(units)

    def project(self, x: Tensor) -> Tensor:
        return self.lstm.input(self.hidden(x))  # type: ignore[no-any-return]

    def step(self, projected: Tensor, state: Tensor) -> Tensor:
        return torch.stack(self.lstm(projected, *state.unbind(-2)), dim=-2)

    def inner_sites(self) -> list[SiteModule]:
        cell, units = self.lstm, self.lstm.units
        return [("cell", cell.memory, units, "recurrent"), ("lstm", cell.exposure, units, "recurrent")]

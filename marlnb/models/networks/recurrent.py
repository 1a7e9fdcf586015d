"""GRU and LSTM: hidden layers, one recurrent layer for each agent and a head; registered as `gru` and `lstm`."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from marlnb.config import NETWORKS
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.recurrent import GRUConfig, LSTMConfig
from marlnb.models.networks.layers import AgentGRUCell, AgentLinear
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.specs import InputSpec


class RecurrentNetwork(HiddenNetwork):
    """Hidden layers, a recurrent layer and a linear head, each a site. The head reads the first layer of the state.

    `project` and `step` have the state without its layer axis if that has size 1.
    """

    recurrent_shape: tuple[int, int]

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """The part of the recurrent layer that depends only on the input x `[..., n_agents, in]`."""

    @abstractmethod
    def step(self, projected: Tensor, state: Tensor) -> Tensor:
        """The state after a step, `[..., n_agents, (layer,) unit]`, from the result of `project` and the state."""

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        projected = self.project(x)
        return self._output(self.step(projected, self._state(projected, recurrent)), x.ndim)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        projected = self.project(x)  # all steps in one matmul; only the recurrent part goes step by step
        state = self._state(projected[:, 0], recurrent)
        inner = (1,) * (state.ndim - 2)  # axes after the agents'
        keeps = (~is_init).to(state.dtype).reshape(*is_init.shape, 1, *inner).unbind(1)
        states = []
        for t, (inputs, keep) in enumerate(zip(projected.unbind(1), keeps)):
            entering = state * keep
            state = self.step(inputs, entering)
            if acting is not None:
                state = torch.where(acting[:, t].reshape(*acting[:, t].shape, *inner), state, entering)
            states.append(state)
        return self._output(torch.stack(states, dim=1), x.ndim)

    def _state(self, projected: Tensor, recurrent: Tensor | None) -> Tensor:
        if recurrent is None:
            recurrent = projected.new_zeros(*projected.shape[:-1], *self.recurrent_shape)
        return recurrent.squeeze(-2)

    def _output(self, state: Tensor, n_axes: int) -> tuple[Tensor, Tensor]:
        state = state if state.ndim > n_axes else state.unsqueeze(-2)
        return self.head(state[..., 0, :]), state


@NETWORKS.register(GRUConfig)
class GRU(RecurrentNetwork):
    """Hidden layers, a gated recurrent unit and a linear head. The state is the unit's."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: GRUConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        units, width = config.recurrent_size, self.add_hidden(inputs.features)
        self.recurrent_shape = (1, units)
        self.gru = AgentGRUCell(n_agents, width, units, shared=config.share_parameters)
        self.add_head(units)

    def project(self, x: Tensor) -> Tensor:
        return self.gru.project(self.hidden(x))

    def readers(self) -> list[AgentLinear]:
        return [self.gru.input]

    def step(self, projected: Tensor, state: Tensor) -> Tensor:
        return self.gru(projected, state)  # type: ignore[no-any-return]

    def inner_sites(self) -> list[SiteModule]:
        return [("gru", self.gru, self.gru.units, "recurrent")]


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


@NETWORKS.register(LSTMConfig)
class LSTM(RecurrentNetwork):
    """Hidden layers, a long short-term memory and a linear head. The state is (hidden, cell)."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: LSTMConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        units, width = config.recurrent_size, self.add_hidden(inputs.features)
        self.recurrent_shape = (2, units)
        self.lstm = AgentLSTMCell(n_agents, width, units, shared=config.share_parameters)
        self.add_head(units)

    def project(self, x: Tensor) -> Tensor:
        return self.lstm.input(self.hidden(x))  # type: ignore[no-any-return]

    def readers(self) -> list[AgentLinear]:
        return [self.lstm.input]

    def step(self, projected: Tensor, state: Tensor) -> Tensor:
        return torch.stack(self.lstm(projected, *state.unbind(-2)), dim=-2)

    def inner_sites(self) -> list[SiteModule]:
        cell, units = self.lstm, self.lstm.units
        return [("cell", cell.memory, units, "recurrent"), ("lstm", cell.exposure, units, "recurrent")]

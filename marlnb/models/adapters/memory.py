"""StackedMemory: recurrent layers of torch, torchrl and BenchMARL, with an agent axis.

The parameters are the original ones, not copies. The agents share one set, or have one set each. The recurrent state is
an argument, so it can be recorded, edited and attributed like that of marlnb's networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.adapters.stacked import linear
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.layers import AgentGRUCell
from marlnb.models.networks.network import Network
from marlnb.models.networks.recurrent import AgentLSTMCell

Kind = Literal["gru", "lstm"]
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class StackedMemory(Network):
    """A stack of GRU or LSTM layers. The output is the hidden state of the last layer.

    The recurrent state of a GRU is (hidden state of each layer); of an LSTM (hidden state of each layer, cell state of
    each layer). Sites are `gru`, or `lstm` and `cell`; with several layers they are numbered from 1.

    Args:
        kind: gru or lstm.
        layers: each layer's parameters by torch's names, for example `weight_ih [(agent,) gate * unit, in]`.
        n_agents: number of agents.
        shared: one set of parameters for all agents; otherwise the tensors have an agent axis.
        centralised: every agent's layers read all agents' observations; if shared, one forward pass serves all agents.
        keys: torchrl's tensordict keys of the states: hidden, then cell.
    Source: torch.nn.GRUCell and torch.nn.LSTMCell (the order of the gates).
    """

    def __init__(
        self,
        kind: Kind,
        layers: Sequence[Mapping[str, Tensor]],
        n_agents: int,
        *,
        shared: bool,
        centralised: bool = False,
        keys: Sequence[tuple[str, ...]] = (),
    ) -> None:
        super().__init__()
        self.kind, self.n_agents, self.shared, self.centralised = kind, n_agents, shared, centralised
        self.keys = tuple(keys)
        self.shared_forward = centralised and shared
        self.cross_agent = centralised and n_agents > 1
        self.layers = nn.ModuleList([_layer(kind, layer, 1 if shared else n_agents, shared) for layer in layers])
        self.units = layers[0]["weight_hh"].shape[-1]
        self.in_features, self.out_features = layers[0]["weight_ih"].shape[-1], self.units
        self.recurrent_shape = (len(layers) * (1 if kind == "gru" else 2), self.units)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`."""
        if self.centralised:
            x = x.flatten(-2).unsqueeze(-2)
            x = x if self.shared else x.expand(*x.shape[:-2], self.n_agents, x.shape[-1])
        assert self.recurrent_shape is not None
        state = x.new_zeros(*x.shape[:-1], *self.recurrent_shape) if recurrent is None else recurrent
        state = state[..., :1, :, :] if self.shared_forward else state
        hidden, cells = [], []
        for index, layer in enumerate(self.layers):
            if self.kind == "gru":
                x = cast(AgentGRUCell, layer)(layer.project(x), state[..., index, :])  # type: ignore[operator]
            else:
                x, cell = layer(x, state[..., index, :], state[..., len(self.layers) + index, :])
                cells.append(cell)
            hidden.append(x)
        next_state = torch.stack([*hidden, *cells], dim=-2)
        if self.shared_forward:
            x, next_state = x.expand(*x.shape[:-2], self.n_agents, -1), _expanded(next_state, self.n_agents)
        return x, next_state

    def site_modules(self) -> list[SiteModule]:
        sites: list[SiteModule] = []
        for index, layer in enumerate(self.layers, start=1):
            number = f"_{index}" if len(self.layers) > 1 else ""
            if isinstance(layer, LSTMLayer):
                sites.append((f"cell{number}", layer.cell.memory, self.units, "recurrent"))
                sites.append((f"lstm{number}", layer.cell.exposure, self.units, "recurrent"))
            else:
                sites.append((f"gru{number}", layer, self.units, "recurrent"))
        return sites


class LSTMLayer(nn.Module):
    """One step of an LSTM with torch's order of gates."""

    def __init__(self, cell: AgentLSTMCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """x `[..., agent, in]`, hidden and cell `[..., agent, unit]` -> the next hidden and cell state."""
        gates = self.cell.input(x) + self.cell.state(hidden)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        gates = torch.cat((forget_gate, candidate, input_gate, output_gate), dim=-1)
        cell = self.cell.memory(gates, cell)
        return self.cell.exposure(gates, cell), cell


def memory_of(module: Any, n_agents: int, *, keys: Sequence[tuple[str, ...]] = ()) -> StackedMemory:
    """The layers of an `nn.GRU` or `nn.LSTM`, or of torchrl's GRU or LSTM, shared by all agents.

    Raises:
        ConfigError: the module is bidirectional, or has proj_size.
    """
    if getattr(module, "bidirectional", False) or getattr(module, "proj_size", 0):
        raise ConfigError(
            f"{type(module).__name__} with bidirectional or proj_size is not supported; "
            "valid: bidirectional=False, proj_size=0"
        )
    parameters = dict(module.named_parameters())
    layers = [
        {name: parameters[f"{name}_l{k}"] for name in NAMES if f"{name}_l{k}" in parameters}
        for k in range(int(module.num_layers))
    ]
    kind: Kind = "lstm" if "LSTM" in type(module).__name__ else "gru"
    return StackedMemory(kind, layers, n_agents, shared=True, keys=keys)


def _layer(kind: Kind, parameters: Mapping[str, Tensor], n_agents: int, shared: bool) -> nn.Module:
    n_units, n_inputs = parameters["weight_hh"].shape[-1], parameters["weight_ih"].shape[-1]
    make = AgentGRUCell if kind == "gru" else AgentLSTMCell
    cell: AgentGRUCell | AgentLSTMCell = make(n_agents, n_inputs, n_units, shared=shared)
    for side, suffix in (("input", "_ih"), ("state", "_hh")):
        side_parameters = {
            name.removesuffix(suffix): value for name, value in parameters.items() if name.endswith(suffix)
        }
        setattr(cell, side, linear(side_parameters, n_agents, shared=shared))
    return LSTMLayer(cell) if isinstance(cell, AgentLSTMCell) else cell


def _expanded(state: Tensor, n_agents: int) -> Tensor:
    """The shared state, expanded to one row per agent: `[..., agent, layer, unit]`."""
    return state.expand(*state.shape[:-3], n_agents, *state.shape[-2:])

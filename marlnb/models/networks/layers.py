"""Layers that carry the agent axis: `[..., n_agents, in] -> [..., n_agents, out]`, with weights shared or not.

Shared weights broadcast over the agents; unshared ones are `[n_agents, out, in]` and meet the input in one batched
matmul. No vmap, so an ordinary hook sees a real tensor with an agent axis in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.errors import ConfigError, ShapeError, unknown
from marlnb.models.networks import fused_ops as fast

ActivationName = Literal["tanh", "relu", "elu", "gelu", "silu"]
HIDDEN_GAIN = 2**0.5

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def activation(name: ActivationName) -> nn.Module:
    """A nonlinearity of its own for one layer (captum's DeepLift needs each to be a module used once).

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in _ACTIVATIONS:
        raise ConfigError(unknown("activation", name, get_args(ActivationName)))
    return _ACTIVATIONS[name]()


class AgentLinear(nn.Module):
    """An affine map `[..., n_agents, in] -> [..., n_agents, out]`.

    weight is `[out, in]` and bias `[out]` where the agents share them, else `[n_agents, out, in]` and
    `[n_agents, out]`. Weights start orthogonal, each agent's on its own and each of `blocks` equal parts of `out` on
    its own; biases start at zero.
    """

    fast = False

    def __init__(
        self, n_agents: int, in_features: int, out_features: int, *, shared: bool, gain: float = 1.0, blocks: int = 1
    ) -> None:
        super().__init__()
        self.n_agents, self.in_features, self.out_features, self.shared = n_agents, in_features, out_features, shared
        agents = () if shared else (n_agents,)
        self.weight = nn.Parameter(torch.empty(*agents, out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(*agents, out_features))
        with torch.no_grad():
            for matrix in self.weight.view(-1, out_features, in_features):
                for block in matrix.chunk(blocks):
                    nn.init.orthogonal_(block, gain)

    def forward(self, x: Tensor) -> Tensor:
        if self.shared:
            return (fast.affine if self.fast else F.linear)(x, self.weight, self.bias)
        if x.shape[-2] != self.n_agents:
            raise ShapeError(f"unshared weights of {self.n_agents} agents got [..., {x.shape[-2]}, {x.shape[-1]}]")
        by_agent = x.reshape(-1, self.n_agents, self.in_features).transpose(0, 1)
        out = torch.baddbmm(self.bias.unsqueeze(1), by_agent, self.weight.mT).transpose(0, 1)
        return out.reshape(*x.shape[:-1], self.out_features)  # a view: the next layer finds each agent's rows together

    def extra_repr(self) -> str:
        return f"n_agents={self.n_agents}, {self.in_features} -> {self.out_features}, shared={self.shared}"


class HiddenLayer(nn.Module):
    """Linear, layer normalisation if asked for, nonlinearity. Its output `[..., n_agents, unit]` is a site."""

    fast = False

    def __init__(
        self, n_agents: int, in_features: int, units: int, *, act: ActivationName, shared: bool, layer_norm: bool
    ) -> None:
        super().__init__()
        self.linear = AgentLinear(n_agents, in_features, units, shared=shared, gain=HIDDEN_GAIN)
        self.norm = nn.LayerNorm(units) if layer_norm else None
        self.activation = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        if self.fast and type(self.activation) is nn.Tanh and self.norm is None and self.linear.shared:
            return fast.affine(x, self.linear.weight, self.linear.bias, tanh=True)
        return self.activate(self.linear(x))

    def activate(self, x: Tensor) -> Tensor:
        """The layer's output of what its affine map gives, in x's own memory where it is fast."""
        x = x if self.norm is None else self.norm(x)
        if self.fast and type(self.activation) is nn.Tanh:
            return fast.tanh_(x)
        activated: Tensor = self.activation(x)
        return activated


class AgentGRUCell(nn.Module):
    """One step of a gated recurrent unit for each agent; equal to `nn.GRUCell` agent by agent.

    It takes the input's part of the gates from `project`, so that a whole sequence is projected in one matmul. Its
    output is the state that leaves the step, which makes it a site: an edit of it feeds back into the next step.
    """

    def __init__(self, n_agents: int, in_features: int, units: int, *, shared: bool) -> None:
        super().__init__()
        self.units = units
        self.input = AgentLinear(n_agents, in_features, 3 * units, shared=shared, blocks=3)
        self.state = AgentLinear(n_agents, units, 3 * units, shared=shared, blocks=3)

    def project(self, x: Tensor) -> Tensor:
        """The input's part of the reset, update and candidate gates: `[..., n_agents, in]` -> `[..., 3 * unit]`."""
        return self.input(x)

    def forward(self, projected: Tensor, state: Tensor) -> Tensor:
        """projected `[..., n_agents, 3 * unit]` and state `[..., n_agents, unit]` -> the next state."""
        recurrent = self.state(state)
        gates = torch.sigmoid(projected[..., : 2 * self.units] + recurrent[..., : 2 * self.units])
        reset, update = gates.chunk(2, dim=-1)
        candidate = torch.tanh(projected[..., 2 * self.units :] + reset * recurrent[..., 2 * self.units :])
        return candidate + update * (state - candidate)


@contextmanager
def fast_training(network: nn.Module) -> Iterator[None]:
    """Inside the block the network's layers compute the same by faster routes; values may differ by rounding.

    For a learner's update and for passes over recorded rows: outside, every layer is made of plain torch modules, for
    captum and torch.func. Only sites may be hooked into meanwhile; what is inside a layer may not be called.
    """
    layers = [module for module in network.modules() if isinstance(module, AgentLinear | HiddenLayer)]
    try:
        for layer in layers:
            layer.fast = True
        yield
    finally:
        for layer in layers:
            layer.fast = False

"""Layers that carry the agent axis: `[..., n_agents, in] -> [..., n_agents, out]`, with weights shared or not.

Shared weights broadcast over the agents; unshared ones are `[n_agents, out, in]` and multiply the input in one batched
matmul. There is no vmap, so an ordinary hook receives a real tensor with an agent axis in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.errors import ConfigError, ShapeError, unknown
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.models.networks.configs.network import ActivationName
from marlnb.models.networks.fast.linear import fast_linear, has_fast_linear
from marlnb.models.networks.fast.tanh import fast_tanh_

HIDDEN_GAIN = 2**0.5

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def activation(name: ActivationName) -> nn.Module:
    """A new nonlinearity for one layer (captum's DeepLift needs every module to be used once).

    Raises:
        ConfigError: no activation has that name.
    """
    if name not in _ACTIVATIONS:
        raise ConfigError(unknown("activation", name, get_args(ActivationName)))
    return _ACTIVATIONS[name]()


class AgentLinear(nn.Module):
    """An affine map y = W x + b, `[..., n_agents, in] -> [..., n_agents, out]`.

    Weights start orthogonal, separately for each agent and each of `blocks` equal parts of `out`; biases start at zero.

    Attributes:
        weight: `[out, in]` if the agents share it, else `[n_agents, out, in]`.
        bias: `[out]` if the agents share it, else `[n_agents, out]`.
        fast: large products by `fast_linear` (set by `fast_training`).
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
        """x `[env, agent, in]` -> `[env, agent, out]`, with any leading axes."""
        if self.has_fast(x):
            return fast_linear(x, self.weight, self.bias)
        if self.shared:
            return F.linear(x, self.weight, self.bias)
        if x.shape[-2] != self.n_agents:
            raise ShapeError(f"unshared weights of {self.n_agents} agents got [..., {x.shape[-2]}, {x.shape[-1]}]")
        by_agent = x.reshape(-1, self.n_agents, self.in_features).transpose(0, 1)
        out = torch.baddbmm(self.bias.unsqueeze(1), by_agent, self.weight.mT).transpose(0, 1)
        return out.reshape(*x.shape[:-1], self.out_features)  # a view: the next layer reads each agent's rows together

    def has_fast(self, x: Tensor) -> bool:
        """Whether `fast_linear` computes the output of x."""
        return self.fast and self.shared and has_fast_linear(x)

    def extra_repr(self) -> str:
        return f"n_agents={self.n_agents}, {self.in_features} -> {self.out_features}, shared={self.shared}"


class HiddenLayer(nn.Module):
    """Linear map, optional layer normalisation, nonlinearity. Its output `[..., n_agents, unit]` is a site.

    Attributes:
        fast: tanh by `fast_linear` or `fast_tanh_` (set by `fast_training`).
    """

    fast = False

    def __init__(
        self, n_agents: int, in_features: int, units: int, *, act: ActivationName, shared: bool, layer_norm: bool
    ) -> None:
        super().__init__()
        self.linear = AgentLinear(n_agents, in_features, units, shared=shared, gain=HIDDEN_GAIN)
        self.norm = nn.LayerNorm(units) if layer_norm else None
        self.activation = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        """x `[env, agent, in]` -> `[env, agent, unit]`, with any leading axes."""
        linear = self.linear
        if self._by_fast_tanh and self.norm is None and isinstance(linear, AgentLinear) and linear.has_fast(x):
            return fast_linear(x, linear.weight, linear.bias, tanh=True)
        return self.activate(linear(x))

    def activate(self, x: Tensor) -> Tensor:
        """Normalisation and nonlinearity of the affine map's output x, which may be overwritten."""
        x = x if self.norm is None else self.norm(x)
        return fast_tanh_(x) if self._by_fast_tanh else self.activation(x)

    @property
    def _by_fast_tanh(self) -> bool:
        return self.fast and type(self.activation) is nn.Tanh


def hidden_layer(n_agents: int, in_features: int, units: int, config: HiddenConfig) -> HiddenLayer:
    """A hidden layer with a network's options."""
    act, shared = config.activation, config.share_parameters
    return HiddenLayer(n_agents, in_features, units, act=act, shared=shared, layer_norm=config.layer_norm)


class AgentGRUCell(nn.Module):
    """One step of a gated recurrent unit for each agent; equal to `nn.GRUCell` agent by agent.

        r = sigmoid(W_r x + U_r h)      z = sigmoid(W_z x + U_z h)
        c = tanh(W_c x + r * (U_c h))   h' = (1 - z) * c + z * h

    The input's part W x is computed by `project`, so that a whole sequence is projected in one matmul. The output is
    the state after the step, which makes the cell a site: an edit of it feeds back into the next step.
    Source: Cho et al. 2014 (arXiv:1406.1078), with the reset gate after the product, as in cuDNN and torch.
    """

    def __init__(self, n_agents: int, in_features: int, units: int, *, shared: bool) -> None:
        super().__init__()
        self.units = units
        self.input = AgentLinear(n_agents, in_features, 3 * units, shared=shared, blocks=3)
        self.state = AgentLinear(n_agents, units, 3 * units, shared=shared, blocks=3)

    def project(self, x: Tensor) -> Tensor:
        """The input's part of both gates and the candidate: `[..., n_agents, in]` -> `[..., n_agents, 3 * unit]`."""
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
    """Inside the block the network's layers use `fast_linear` and `fast_tanh_`; values may differ by rounding.

    For a learner's update and for passes over recorded rows. Outside the block every layer consists of plain torch
    modules, as captum and torch.func need. Inside it a layer's modules `linear` and `activation` may not be called.
    """
    layers = [module for module in network.modules() if isinstance(module, AgentLinear | HiddenLayer)]
    try:
        for layer in layers:
            layer.fast = True
        yield
    finally:
        for layer in layers:
            layer.fast = False

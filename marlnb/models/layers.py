"""Layers that carry the agent axis: `[..., n_agents, in] -> [..., n_agents, out]`, with weights shared or not.

Shared weights broadcast over the agents; unshared ones are `[n_agents, out, in]` and meet the input in one batched
matmul. No vmap, so an ordinary hook sees a real tensor with an agent axis in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.errors import ConfigError, ShapeError, unknown

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
            if self.fast and self.in_features < self.out_features and torch.is_grad_enabled():
                shared: Tensor = _WideningAffine.apply(x, self.weight, self.bias)
                return shared
            return F.linear(x, self.weight, self.bias)
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
        x = self.linear(x)
        x = x if self.norm is None else self.norm(x)
        if self.fast and type(self.activation) is nn.Tanh:
            return fast_tanh_(x)
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
    """Inside the block the network's layers compute the same by faster routes; values may differ by about 2e-7.

    For a learner's update only: outside, every layer is made of plain torch modules, for captum and torch.func.
    """
    layers = [module for module in network.modules() if isinstance(module, AgentLinear | HiddenLayer)]
    try:
        for layer in layers:
            layer.fast = True
        yield
    finally:
        for layer in layers:
            layer.fast = False


def fast_tanh_(x: Tensor) -> Tensor:
    """tanh to an absolute 2e-7, through the sigmoid, which torch computes several times faster on a CPU.

    In x's own memory: to be used where nothing else needs what was there.
    """
    if x._is_view():  # autograd follows no change of a view from within a function of ours
        x = x.clone()
    y: Tensor = _FastTanh.apply(x) if torch.is_grad_enabled() else _tanh_by_sigmoid_(x)
    return y


def _tanh_by_sigmoid_(x: Tensor) -> Tensor:
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class _FastTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        y = _tanh_by_sigmoid_(x)
        ctx.mark_dirty(y)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, y)


class _WideningAffine(torch.autograd.Function):
    """F.linear whose weight gradient is formed transposed: for few inputs and many outputs 2 to 5 times faster."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        to_x = gradient @ weight if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:  # a critic through which an actor learns
            return to_x, None, None
        return to_x, (x.reshape(-1, x.shape[-1]).t() @ rows).t(), rows.sum(0)

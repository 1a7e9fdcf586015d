"""StackedNetwork: torchrl's MultiAgentMLP and MultiAgentConvNet on layers that keep the agent axis.

torchrl runs networks that agents do not share under vmap: a hook on them sees a tensor without its agent axis, which
dies on use. Here the very parameters of such a network (not copies) work in layers `[..., agent, unit]`, so that hooks,
edits and captum see real tensors. Outputs are the same to float32's rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn
from torchrl.modules.models.multiagent import MultiAgentNetBase

from marlnb.errors import ConfigError
from marlnb.models.adapters.naming import NORMS, POINTWISE, leaves, stages
from marlnb.models.hooks.sites import Site, SiteKind
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.network import Network


class StackedNetwork(Network):
    """The layers of one network for each agent, or of one that they share, which keeps `[..., agent, ...]`.

    Args:
        layers: in order, each `[batch, agent, ...]` -> `[batch, agent, ...]`.
        shape: what one agent's network reads; of a centralised one, what all of them see.
        centralised: every agent's network reads all agents' observations.
        shared: one network; with `centralised` it runs once for all agents, on an agent axis of 1.
        joint: how a centralised network's input is made of `[batch, agent, *observation]`.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        n_agents: int,
        shape: Sequence[int],
        out_features: int,
        *,
        centralised: bool,
        shared: bool,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.n_agents, self.shape, self.out_features = n_agents, tuple(shape), out_features
        self.in_features = int(torch.Size(self.shape).numel())
        self.centralised, self.shared = centralised, shared
        self.cross_agent = centralised and n_agents > 1
        self.shared_forward = centralised and shared

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: observations flattened, an image's channels first."""
        lead, n = x.shape[:-2], self.n_agents
        x = x.reshape(-1, x.shape[-2], x.shape[-1])
        if self.centralised:
            x = x.flatten(1).unsqueeze(1)
            x = x if self.shared else x.expand(-1, n, -1)
        if len(self.shape) > 1:
            x = x.reshape(*x.shape[:2], *self.shape)
        for layer in self.layers:
            x = layer(x)
        x = x.expand(-1, n, -1) if self.shared_forward else x
        return x.reshape(*lead, n, self.out_features), None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        sites: list[tuple[str, nn.Module, int, SiteKind]] = []
        for number, layer in enumerate(self.layers, start=1):
            stage = cast(Stage, layer)
            bare = number == len(self.layers) and not stage.after
            sites.append(("head" if bare else f"hidden_{number}", layer, stage.units, "head" if bare else "hidden"))
        return [item for item in sites if item[2]]

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        return super().sites(prefix, n_agents, shared_forward=shared_forward or self.shared_forward)


class Stage(nn.Module):
    """A map and what follows it: normalisation, nonlinearity. Its output is a site where it is `[..., agent, unit]`.

    units: 0 where its output is no `[..., agent, unit]`: a convolution's image.
    """

    def __init__(self, first: nn.Module, after: Sequence[nn.Module], units: int) -> None:
        super().__init__()
        self.first, self.after, self.units = first, nn.ModuleList(after), units

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.after:
            x = layer(x)
        return x


class EachAgent(nn.Module):
    """A layer for each agent, `[batch, agent, ...]` -> `[batch, agent, ...]`; or one that all share."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        if len(self.layers) == 1:
            out: Tensor = self.layers[0](x.flatten(0, 1))
            return out.unflatten(0, x.shape[:2])
        return torch.stack([layer(x[:, agent]) for agent, layer in enumerate(self.layers)], dim=1)


def stacked(net: MultiAgentNetBase, shape: Sequence[int]) -> StackedNetwork:
    """torchrl's multi-agent network with an agent axis in every layer, over the same parameters.

    Args:
        shape: one agent's observation.
    Raises:
        ConfigError: it was not run yet (lazy), or is made of more than a chain of layers.
    """
    if any(isinstance(p, nn.UninitializedParameter) for p in net.params.values(True, True)):
        raise ConfigError(
            f"the parameters of this {type(net).__name__} do not exist yet: run it once, or give n_agent_inputs"
        )
    parameters = by_path(net.params)
    chain = leaves(net._empty_net)
    if chain is None:
        raise ConfigError(
            f"{type(net).__name__} is made of {type(net._empty_net).__name__}, which is no chain of layers; give the "
            "agents' modules to agents_from_module: net.get_stateful_net() where they share one"
        )
    paths = _leaf_paths(net._empty_net)
    shared = bool(net.share_params)
    layers = [layer_of(layer, below(parameters, path), net.n_agents, shared) for layer, path in zip(chain, paths)]
    seen = list(shape)
    if net.centralized:
        seen = [net.n_agents * seen[0], *seen[1:]]
    return assemble(layers, net.n_agents, seen, centralised=bool(net.centralized), shared=shared)


def by_path(params: TensorDictBase | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters by their path, as `0.weight`; the Parameters themselves where they are such."""
    if isinstance(params, Mapping) and not isinstance(params, TensorDictBase):
        return dict(params)
    return {".".join(key if isinstance(key, tuple) else (key,)): params.get(key) for key in params.keys(True, True)}


def assemble(
    layers: Sequence[nn.Module], n_agents: int, shape: Sequence[int], *, centralised: bool, shared: bool
) -> StackedNetwork:
    """A network of layers `[batch, agent, ...]` in order."""
    parts = stages([_plain(layer) for layer in layers])
    if parts is None:
        raise ConfigError(f"a network begins with a linear map or a convolution; this one with {layers[0]}")
    rows = 1 if centralised and shared else n_agents
    joined, x = [], torch.zeros(2, rows, *shape, device=next(layers[0].parameters()).device)
    with torch.no_grad():
        for part in parts:
            stage = Stage(layers[part[0]], [layers[index] for index in part[1:]], 0)
            x = stage(x)
            stage.units = x.shape[-1] if x.ndim == 3 else 0
            joined.append(stage)
    return StackedNetwork(joined, n_agents, shape, x.shape[-1], centralised=centralised, shared=shared)


def layer_of(layer: nn.Module, parameters: Mapping[str, Tensor], n_agents: int, shared: bool) -> nn.Module:
    """One layer of a chain for `[batch, agent, ...]`, with its parameters: those of all agents stacked, or shared."""
    if isinstance(layer, nn.Linear):
        return linear(parameters, n_agents, shared=shared)
    if not parameters and isinstance(layer, POINTWISE):
        return copy.deepcopy(layer)
    if shared and isinstance(layer, NORMS):
        return filled(layer, parameters)
    if shared or not parameters:
        return EachAgent([filled(layer, parameters)])
    return EachAgent(
        [filled(layer, {name: tensor[agent] for name, tensor in parameters.items()}) for agent in range(n_agents)]
    )


def linear(parameters: Mapping[str, Tensor], n_agents: int, *, shared: bool) -> AgentLinear:
    """An AgentLinear over a weight `[(agent,) out, in]` and perhaps a bias `[(agent,) out]`."""
    weight = parameters["weight"]
    bias = parameters.get("bias")
    made = AgentLinear(n_agents, weight.shape[-1], weight.shape[-2], shared=shared)
    made.weight = _parameter(weight)
    made.bias = _parameter(bias if bias is not None else weight.new_zeros(weight.shape[:-1]))
    return made


def filled(layer: nn.Module, parameters: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a layer whose parameters lie nowhere yet, over the ones given."""
    made = copy.deepcopy(layer)
    for name, tensor in parameters.items():
        place_parameter(made, name, tensor)
    return made


def place_parameter(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Puts a parameter or buffer where torchrl left an empty tensor, which may be a plain attribute."""
    module.__dict__.pop(name, None)
    if name in module._buffers:
        module._buffers[name] = tensor
    else:
        module._parameters[name] = _parameter(tensor)


def _parameter(tensor: Tensor) -> nn.Parameter:
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor.detach())


def _plain(layer: nn.Module) -> nn.Module:
    return layer.layers[0] if isinstance(layer, EachAgent) else layer  # type: ignore[return-value]


def _leaf_paths(module: nn.Module) -> list[str]:
    return [path for path, below in module.named_modules(remove_duplicate=False) if not list(below.children())]


def below(parameters: Mapping[str, Tensor], path: str) -> dict[str, Tensor]:
    start = f"{path}." if path else ""
    return {
        name[len(start) :]: tensor
        for name, tensor in parameters.items()
        if name.startswith(start) and "." not in name[len(start) :]
    }

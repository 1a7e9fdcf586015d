"""StackedNetwork: torchrl's MultiAgentMLP and MultiAgentConvNet on layers that keep the agent axis.

torchrl runs unshared networks under vmap: a hook gets a tensor without its agent axis, which raises an error on use.
Here the same parameters (not copies) are used in layers `[..., agent, unit]`, so that hooks, edits and captum get
ordinary tensors. Outputs are equal up to float32 rounding.
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
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.network import Network


class StackedNetwork(Network):
    """One network per agent, or one shared network; every layer keeps the axes `[..., agent, ...]`.

    Args:
        layers: in order, each maps `[batch, agent, ...]` to `[batch, agent, ...]`.
        n_agents: number of agents.
        shape: of the network's input; a centralised network reads all agents' observations.
        out_features: number of outputs of each agent.
        centralised: every agent's network reads all agents' observations.
        shared: all agents share one network; if centralised, it runs once for all agents, on an agent axis of size 1.
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
        """x `[..., agent, feature]`: flattened observations; images have channels first."""
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

    def site_modules(self) -> list[SiteModule]:
        sites: list[SiteModule] = []
        for number, layer in enumerate(self.layers, start=1):
            stage = cast(Stage, layer)
            is_head = number == len(self.layers) and not stage.after
            sites.append(
                ("head" if is_head else f"hidden_{number}", layer, stage.units, "head" if is_head else "hidden")
            )
        return [item for item in sites if item[2]]


class Stage(nn.Module):
    """A linear map or convolution, and the normalisation and nonlinearity after it.

    Its output is a site if it is `[..., agent, unit]`.

    Args:
        first: the linear map or convolution.
        after: the layers after it.
        units: size of an output `[..., agent, unit]`; 0 for a convolution's image.
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
    """One layer per agent, or one shared layer: `[batch, agent, ...]` -> `[batch, agent, ...]`."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        if len(self.layers) == 1:
            out: Tensor = self.layers[0](x.flatten(0, 1))
            return out.unflatten(0, x.shape[:2])
        return torch.stack([layer(x[:, agent]) for agent, layer in enumerate(self.layers)], dim=1)


def stacked(net: MultiAgentNetBase, shape: Sequence[int]) -> StackedNetwork:
    """torchrl's multi-agent network with an agent axis in every layer, and the same parameters.

    Args:
        net: a MultiAgentMLP, MultiAgentConvNet or the like.
        shape: one agent's observation.
    Raises:
        ConfigError: its lazy parameters are not initialised, or it is no chain of layers.
    """
    if any(isinstance(p, nn.UninitializedParameter) for p in net.params.values(True, True)):
        raise ConfigError(
            f"the parameters of this {type(net).__name__} do not exist yet: call it once, or set n_agent_inputs"
        )
    parameters = by_path(net.params)
    chain = leaves(net._empty_net)
    if chain is None:
        raise ConfigError(
            f"{type(net).__name__} contains a {type(net._empty_net).__name__}; expected a chain of layers. For another "
            "module: agents_from_module, with net.get_stateful_net() if the agents share it"
        )
    paths = _leaf_paths(net._empty_net)
    shared = bool(net.share_params)
    layers = [layer_of(layer, below(parameters, path), net.n_agents, shared) for layer, path in zip(chain, paths)]
    in_shape = list(shape)
    if net.centralized:
        in_shape = [net.n_agents * in_shape[0], *in_shape[1:]]
    return assemble(layers, net.n_agents, in_shape, centralised=bool(net.centralized), shared=shared)


def by_path(params: TensorDictBase | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters by their path, for example `0.weight`; nn.Parameters are not copied."""
    if isinstance(params, Mapping) and not isinstance(params, TensorDictBase):
        return dict(params)
    return {".".join(key if isinstance(key, tuple) else (key,)): params.get(key) for key in params.keys(True, True)}


def assemble(
    layers: Sequence[nn.Module], n_agents: int, shape: Sequence[int], *, centralised: bool, shared: bool
) -> StackedNetwork:
    """The network of layers `[batch, agent, ...]`, in order.

    Raises:
        ConfigError: the first layer is no linear map or convolution.
    """
    parts = stages([_first_layer(layer) for layer in layers])
    if parts is None:
        raise ConfigError(f"a network must start with a linear map or a convolution; got {layers[0]}")
    rows = 1 if centralised and shared else n_agents
    network_stages, x = [], torch.zeros(2, rows, *shape, device=next(layers[0].parameters()).device)
    with torch.no_grad():
        for part in parts:
            stage = Stage(layers[part[0]], [layers[index] for index in part[1:]], 0)
            x = stage(x)
            stage.units = x.shape[-1] if x.ndim == 3 else 0
            network_stages.append(stage)
    return StackedNetwork(network_stages, n_agents, shape, x.shape[-1], centralised=centralised, shared=shared)


def layer_of(layer: nn.Module, parameters: Mapping[str, Tensor], n_agents: int, shared: bool) -> nn.Module:
    """A layer for `[batch, agent, ...]` with its parameters, which are stacked over agents or shared."""
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
    """An AgentLinear with the weight `[(agent,) out, in]` and optional bias `[(agent,) out]`."""
    weight = parameters["weight"]
    bias = parameters.get("bias")
    new_layer = AgentLinear(n_agents, weight.shape[-1], weight.shape[-2], shared=shared)
    new_layer.weight = _parameter(weight)
    new_layer.bias = _parameter(bias if bias is not None else weight.new_zeros(weight.shape[:-1]))
    return new_layer


def filled(layer: nn.Module, parameters: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a layer with the given parameters."""
    new_layer = copy.deepcopy(layer)
    for name, tensor in parameters.items():
        place_parameter(new_layer, name, tensor)
    return new_layer


def place_parameter(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Replaces a parameter, a buffer, or the plain tensor attribute that torchrl leaves in an empty network."""
    module.__dict__.pop(name, None)
    if name in module._buffers:
        module._buffers[name] = tensor
    else:
        module._parameters[name] = _parameter(tensor)


def _parameter(tensor: Tensor) -> nn.Parameter:
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor.detach())


def _first_layer(layer: nn.Module) -> nn.Module:
    return layer.layers[0] if isinstance(layer, EachAgent) else layer  # type: ignore[return-value]


def _leaf_paths(module: nn.Module) -> list[str]:
    return [path for path, child in module.named_modules(remove_duplicate=False) if not list(child.children())]


def below(parameters: Mapping[str, Tensor], path: str) -> dict[str, Tensor]:
    prefix = f"{path}." if path else ""
    return {
        name[len(prefix) :]: tensor
        for name, tensor in parameters.items()
        if name.startswith(prefix) and "." not in name[len(prefix) :]
    }

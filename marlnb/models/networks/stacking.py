"""Several networks of one architecture as one: their weights stacked along a leading axis, one batched product a layer.

    y[k, row, agent] = W[k] x[k, row, agent] + b[k]

`stack` copies the first network and replaces the layers that have weights, so everything else, such as the nonlinearity
and the order of layers, is the network's own code.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.networks.agent_id import AgentId
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.mlp import MLP
from marlnb.models.networks.network import Network

Module = TypeVar("Module", bound=nn.Module)

STACKABLE: tuple[type[Network], ...] = (MLP, AgentId)  # networks that let further leading axes through
MAX_ROWS = 1024  # of one network's input; on a CPU, larger products gain nothing from being joined


class StackedLinear(nn.Module):
    """`AgentLinear` of several networks, `[network, ..., agent, in] -> [network, ..., agent, out]`.

    Args:
        weight: `[network, out, in]` if the agents share it, else `[network, agent, out, in]`.
        bias: `[network, out]` if the agents share it, else `[network, agent, out]`.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.shared = weight.ndim == 3

    def forward(self, x: Tensor) -> Tensor:
        n_networks, n_agents = x.shape[0], x.shape[-2]
        if self.shared:
            out = torch.baddbmm(self.bias.unsqueeze(1), x.flatten(1, -2), self.weight.mT)
            return out.view(*x.shape[:-1], out.shape[-1])
        by_agent = x.flatten(1, -3).transpose(1, 2).flatten(0, 1)  # [network * agent, row, in]
        bias, weight = self.bias.flatten(0, 1).unsqueeze(1), self.weight.flatten(0, 1)
        out = torch.baddbmm(bias, by_agent, weight.mT).unflatten(0, (n_networks, n_agents))
        return out.transpose(1, 2).reshape(*x.shape[:-1], out.shape[-1])


class StackedLayerNorm(nn.Module):
    """`nn.LayerNorm` of several networks over the last axis of `[network, row, agent, unit]`.

    Args:
        weight, bias: `[network, unit]`.
    """

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: Tensor) -> Tensor:
        normalised = nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
        return torch.addcmul(self.bias[:, None, None], normalised, self.weight[:, None, None])


def stack(module: Module, weights: Mapping[str, Tensor]) -> Module:
    """A copy of `module` that computes several modules of its architecture at once.

    Its input and output have a further first axis: `[network, row, agent, feature]`.

    Args:
        module: one of them.
        weights: of all, by parameter's name, `[network, *shape]`; those of no layer, such as an actor's log_std, in a
            shape that broadcasts to `[network, row, agent, unit]`. The copy reads these tensors themselves.
    """
    layers: dict[int, nn.Module] = {}  # by id of a layer, what the copy has instead of it
    for path, layer in module.named_modules():
        if isinstance(layer, AgentLinear):
            layers[id(layer)] = StackedLinear(weights[f"{path}.weight"], weights[f"{path}.bias"])
        elif isinstance(layer, nn.LayerNorm):
            layers[id(layer)] = StackedLayerNorm(weights[f"{path}.weight"], weights[f"{path}.bias"], layer.eps)
    stacked = copy.deepcopy(module, dict(layers))
    for name, _ in list(stacked.named_parameters(recurse=False)):
        delattr(stacked, name)
        setattr(stacked, name, weights[name])
    return stacked


def stack_weights(modules: Sequence[nn.Module]) -> Tensor:
    """The weights of modules of one architecture as one matrix `[network, weight]`.

    The modules' own parameters become views of its rows, so they can be read, saved and loaded as ever.
    """
    matrix = torch.stack([nn.utils.parameters_to_vector(module.parameters()) for module in modules]).detach()
    for row, module in zip(matrix, modules, strict=True):
        parameters = list(module.parameters())
        for parameter, values in zip(parameters, row.split([each.numel() for each in parameters]), strict=True):
            parameter.data = values.view(parameter.shape)
    return matrix


def stacked_views(module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
    """By parameter's name, views of a matrix of `stack_weights`, as `stack` takes them.

    Args:
        module: one of the modules.
    """
    named = list(module.named_parameters())
    views = {}
    for (name, first), values in zip(named, matrix.split([weight.numel() for _, weight in named], dim=-1), strict=True):
        shape = first.shape if "." in name else (*(1,) * (3 - first.ndim), *first.shape)  # [row, agent, unit]
        views[name] = values.view(len(matrix), *shape)
    return views


def check_stackable(networks: Sequence[Network], what: str) -> None:
    """Raises ConfigError unless the networks can be stacked: feed-forward ones of equal shapes.

    Args:
        networks: of several training runs.
        what: beginning of the message, for example "the actor of group 'agent'".
    """
    for network in networks:
        inner = network.inner if isinstance(network, AgentId) else network
        if type(network) not in STACKABLE or type(inner) not in STACKABLE:
            kind = getattr(getattr(inner, "config", None), "name", type(inner).__name__)
            raise ConfigError(f"{what} is a network of kind {kind!r}; training runs in one batch need kind 'mlp'")
    frozen = [name for network in networks for name, weight in network.named_parameters() if not weight.requires_grad]
    if frozen:
        raise ConfigError(f"{what} has frozen parameters, such as {frozen[0]}; training runs in one batch train all")
    shapes = [{name: tuple(value.shape) for name, value in network.state_dict().items()} for network in networks]
    activations = [[type(module) for module in network.modules()] for network in networks]
    if any(shape != shapes[0] for shape in shapes) or any(kinds != activations[0] for kinds in activations):
        raise ConfigError(f"{what} has different layers in the training runs; those in one batch need equal ones")

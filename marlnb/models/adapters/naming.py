"""Names of the layers of a chain: hidden_1, hidden_2, ..., head, as in marlnb's networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from marlnb.models.networks.layers import AgentLinear

MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, AgentLinear)
POINTWISE = tuple(
    getattr(nn, name)
    for name in [
        "Tanh",
        "ReLU",
        "ELU",
        "GELU",
        "SiLU",
        "LeakyReLU",
        "CELU",
        "SELU",
        "Softplus",
        "Sigmoid",
        "Mish",
        "Hardtanh",
        "ReLU6",
        "Softsign",
        "Hardswish",
        "LogSigmoid",
        "Hardsigmoid",
        "Tanhshrink",
        "Softshrink",
        "Hardshrink",
        "Identity",
        "Dropout",
        "AlphaDropout",
    ]
)
NORMS = (nn.LayerNorm,)


def leaves(module: nn.Module) -> Iterator[nn.Module] | None:
    """The layers of nested `nn.Sequential`s in order; None if another kind of module contains layers."""
    layers = _leaves(module)
    return iter(layers) if layers is not None else None


def _leaves(module: nn.Module) -> list[nn.Module] | None:
    if not isinstance(module, nn.Sequential):
        return [module] if not list(module.children()) else None
    layers: list[nn.Module] = []
    for child in module:
        child_layers = _leaves(child)
        if child_layers is None:
            return None
        layers += child_layers
    return layers


def stages(layers: Sequence[nn.Module]) -> list[list[int]] | None:
    """Indices of a chain's layers. Each list is a linear map or convolution and the layers after it.

    None if the chain starts with another layer.
    """
    indices: list[list[int]] = []
    for index, layer in enumerate(layers):
        if isinstance(layer, MAPS):
            indices.append([index])
        elif not indices:
            return None
        else:
            indices[-1].append(index)
    return indices


def chain_names(module: nn.Module, kept: Sequence[nn.Module]) -> dict[int, str] | None:
    """Names of the modules in `kept` that end a stage, by their index in `kept`; None if `module` is no chain."""
    chain = leaves(module)
    if chain is None:
        return None
    layers = list(chain)
    parts = stages(layers)
    known = all(isinstance(layer, (*MAPS, *POINTWISE, *NORMS)) for layer in layers)
    if parts is None or not known or len({id(layer) for layer in layers}) != len(layers):
        return None
    index_of = {id(layer): index for index, layer in enumerate(kept)}
    names: dict[int, str] = {}
    for number, part in enumerate(parts, start=1):
        end = next((i for i in reversed(part) if id(layers[i]) in index_of), None)
        if end is not None:
            is_head = number == len(parts) and len(part) == 1
            names[index_of[id(layers[end])]] = "head" if is_head else f"hidden_{number}"
    return names

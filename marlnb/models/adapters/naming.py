"""Names of the layers of a chain: hidden_1, hidden_2, ..., head, as in marlnb's networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from marlnb.models.networks.layers import AgentLinear

MAPS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, AgentLinear)
NOT_POINTWISE = {"GLU", "LogSoftmax", "MultiheadAttention", "PReLU", "RReLU", "Softmax", "Softmax2d", "Softmin"}
ACTIVATIONS = tuple(getattr(nn, name) for name in nn.modules.activation.__all__ if name not in NOT_POINTWISE)
POINTWISE = (*ACTIVATIONS, nn.Identity, nn.Dropout, nn.AlphaDropout)
NORMS = (nn.LayerNorm,)


def leaves(module: nn.Module) -> list[nn.Module] | None:
    """The layers of nested `nn.Sequential`s in order; None if another kind of module contains layers."""
    if not isinstance(module, nn.Sequential):
        return None if list(module.children()) else [module]
    chains = [leaves(child) for child in module]
    return None if None in chains else [layer for chain in chains if chain for layer in chain]


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
    layers = leaves(module)
    if layers is None:
        return None
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

"""Entities: the rows of an observation (N, F), or parts of equal shape that a centralised critic reads.

The layers here apply the same weights to every entity of a set and keep the agent axis, so that their output,
`[..., n_agents, entity * unit]`, is a site like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.models.networks.configs.network import Pooling
from marlnb.models.networks.inputs import Columns
from marlnb.models.networks.layers import hidden_layer
from marlnb.specs import InputRole, InputSpec


@dataclass(frozen=True)
class EntitySet:
    """Entities of one kind.

    Attributes:
        columns: their columns of the input.
        n: number of entities.
        size: features of each.
    """

    columns: Columns
    n: int
    size: int


def find_entities(model: str, inputs: InputSpec) -> tuple[list[EntitySet], Columns]:
    """The sets of entities among the inputs, and the columns of everything else.

    Rows of the same length form one set, also across parts; so do two or more vectors of the same length. Observations,
    states and actions are never in one set. A single vector is not an entity.

    Raises:
        ConfigError: the inputs have no entities, or have images.
    """
    kinds: dict[tuple[InputRole, int, int], list[int]] = {}
    roles: Sequence[InputRole] = inputs.roles or ["observation"] * len(inputs.parts)
    for index, (role, part) in enumerate(zip(roles, inputs.parts, strict=True)):
        if len(part) > 2:
            raise ConfigError(f"model {model!r} reads rows (N, F) and vectors; got {part}: images are for model=cnn")
        if part:
            kinds.setdefault((role, len(part), part[-1]), []).append(index)
    sets = {kind: parts for kind, parts in kinds.items() if kind[1] == 2 or len(parts) > 1}
    if not sets:
        raise ConfigError(
            f"model {model!r} reads entities: rows of an observation (N, F), or equal parts that a centralised "
            f"critic reads; got inputs of shape {', '.join(map(str, inputs.parts))}"
        )
    members = {index for parts in sets.values() for index in parts}
    rest = Columns(inputs, [index for index in range(len(inputs.parts)) if index not in members], context=True)
    columns = [(Columns(inputs, parts), size) for (*_, size), parts in sets.items()]
    return [EntitySet(part, part.n_features // size, size) for part, size in columns], rest


class EntityLayer(nn.Module):
    """One hidden layer for every entity: `[..., n_agents, entity * in]` -> `[..., n_agents, entity * unit]`; a site."""

    def __init__(self, n_agents: int, n_entities: int, in_features: int, units: int, config: HiddenConfig) -> None:
        super().__init__()
        self.n_entities, self.units = n_entities, units
        self.layer = hidden_layer(n_agents, in_features, units, config)

    def site(self, name: str) -> SiteModule:
        return name, self, self.n_entities * self.units, "hidden"

    def forward(self, x: Tensor) -> Tensor:
        return each_entity(self.layer, x.unflatten(-1, (self.n_entities, -1))).flatten(-2)


class Pool(nn.Module):
    """A pool over entities: `[..., n_agents, entity * unit]` -> `[..., n_agents, unit]`; a site."""

    def __init__(self, n_entities: int, pooling: Pooling) -> None:
        super().__init__()
        self.n_entities, self.pooling = n_entities, pooling

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(-1, (self.n_entities, -1))
        if self.pooling == "max":
            return x.amax(-2)
        return x.mean(-2) if self.pooling == "mean" else x.sum(-2)


def each_entity(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer that carries the agent axis, on every entity: `[..., n_agents, entity, in]` -> `[..., entity, unit]`."""
    y: Tensor = layer(x.transpose(-3, -2))
    return y.transpose(-3, -2)


def set_names(n_sets: int) -> list[str]:
    """Prefix of the site names of each set; empty for a single set."""
    return [""] if n_sets == 1 else [f"set_{number}/" for number in range(1, n_sets + 1)]

"""DeepSets: the same layers for every entity, a pool, hidden layers and a head; registered as `deep_sets`.

    f(X) = rho(pool_i phi(x_i), rest)      phi: entity layers; rho: hidden layers and head

Source: Zaheer et al. 2017, Deep Sets, theorem 2 (arXiv:1703.06114).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor, nn

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import SiteKind
from marlnb.models.networks.entities import EntityLayer, EntitySet, Pool, Pooling, find_entities, join, set_names
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.mlp import HiddenConfig, check_sizes, hidden_layers, hidden_sites
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec


class PooledSet(nn.Module):
    """One set of entities: the same layers phi for each, then a pool over them."""

    def __init__(self, n_agents: int, entities: EntitySet, config: DeepSetsConfig) -> None:
        super().__init__()
        self.columns = entities.columns
        widths = [entities.size, *config.entity_hidden]
        self.layers = nn.ModuleList(
            EntityLayer(
                n_agents,
                entities.n,
                width,
                units,
                act=config.activation,
                shared=config.share_parameters,
                layer_norm=config.layer_norm,
            )
            for width, units in itertools.pairwise(widths)
        )
        self.pool = Pool(entities.n, config.pooling)
        self.units = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        x = self.columns.take(x)
        for layer in self.layers:
            x = layer(x)
        pooled: Tensor = self.pool(x)
        return pooled

    def site_modules(self, prefix: str) -> list[tuple[str, nn.Module, int, SiteKind]]:
        sites: list[tuple[str, nn.Module, int, SiteKind]] = []
        for index, layer in enumerate(self.layers, start=1):
            layer = cast(EntityLayer, layer)
            sites.append((f"{prefix}entity_{index}", layer, layer.n_entities * layer.units, "hidden"))
        return [*sites, (f"{prefix}pooled", self.pool, self.units, "hidden")]


class DeepSets(Network):
    """Pooled sets of entities and all other inputs, hidden layers and a linear head."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: DeepSetsConfig) -> None:
        super().__init__()
        self.n_agents, self.in_features, self.out_features = n_agents, inputs.features, out_features
        entities, self.rest = find_entities(config.name, inputs)
        self.sets = nn.ModuleList(PooledSet(n_agents, each, config) for each in entities)
        width = self.rest.n_features + sum(cast(PooledSet, each).units for each in self.sets)
        self.hidden = hidden_layers(n_agents, width, config)
        self.head = AgentLinear(
            n_agents, config.hidden[-1] if config.hidden else width, out_features, shared=config.share_parameters
        )

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        parts = [pooled(x) for pooled in self.sets]
        if self.rest.n_features:
            parts.append(self.rest.take(x))
        x = join(parts)
        for layer in self.hidden:
            x = layer(x)
        return self.head(x), None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        sites: list[tuple[str, nn.Module, int, SiteKind]] = []
        for prefix, pooled in zip(set_names(len(self.sets)), self.sets):
            sites += cast(PooledSet, pooled).site_modules(prefix)
        return [*sites, *hidden_sites(self.hidden), ("head", self.head, self.out_features, "head")]


@MODELS.register("deep_sets")
@dataclass(frozen=True)
class DeepSetsConfig(HiddenConfig):
    """A permutation-invariant network over entities: rows of an observation, or the agents that a critic reads."""

    reads_shape: ClassVar[bool] = True

    hidden: tuple[int, ...] = option((64,), help="units of each hidden layer after the pool", unit="units")
    entity_hidden: tuple[int, ...] = option((64, 64), help="units of each layer for an entity", unit="units", ge=1)
    pooling: Pooling = option("mean", help="over the entities", choices=("mean", "sum", "max"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.entity_hidden:
            raise ConfigError(f"model {self.name!r}: entity_hidden needs at least one layer; got none")

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        check_sizes(self.name, hidden=self.hidden, inputs=(inputs.features,), out_features=(out_features,))
        return DeepSets(n_agents, inputs, out_features, self)

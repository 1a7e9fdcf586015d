"""DeepSets: the same layers for every entity, a pool, hidden layers and a head; registered as `deep_sets`.

    f(X) = rho(pool_i phi(x_i), rest)      phi: entity layers; rho: hidden layers and head

Source: Zaheer et al. 2017, Deep Sets, theorem 2 (arXiv:1703.06114).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn

from marlnb.config import NETWORKS
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.deep_sets import DeepSetsConfig
from marlnb.models.networks.entities import EntityLayer, EntitySet, Pool, find_entities, set_names
from marlnb.models.networks.inputs import join
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.specs import InputSpec


class PooledSet(nn.Module):
    """One set of entities: the same layers phi for each, then a pool over them."""

    def __init__(self, n_agents: int, entities: EntitySet, config: DeepSetsConfig) -> None:
        super().__init__()
        self.columns = entities.columns
        widths = [entities.size, *config.entity_hidden]
        pairs = itertools.pairwise(widths)
        self.layers = nn.Sequential(*(EntityLayer(n_agents, entities.n, *pair, config) for pair in pairs))
        self.pool = Pool(entities.n, config.pooling)
        self.units = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.layers(self.columns.take(x)))  # type: ignore[no-any-return]

    def site_modules(self, prefix: str) -> list[SiteModule]:
        layers = enumerate(cast(Iterable[EntityLayer], self.layers), start=1)
        entities = [layer.site(f"{prefix}entity_{index}") for index, layer in layers]
        return [*entities, (f"{prefix}pooled", self.pool, self.units, "hidden")]


@NETWORKS.register(DeepSetsConfig)
class DeepSets(HiddenNetwork):
    """Pooled sets of entities and all other inputs, hidden layers and a linear head."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: DeepSetsConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        entities, self.rest = find_entities(config.name, inputs)
        self.sets = nn.ModuleList(PooledSet(n_agents, each, config) for each in entities)
        width = self.rest.n_features + sum(cast(PooledSet, each).units for each in self.sets)
        self.add_head(self.add_hidden(width))

    def embed(self, x: Tensor) -> Tensor:
        return join([*(pooled(x) for pooled in self.sets), self.rest.take(x)])

    def first_sites(self) -> list[SiteModule]:
        sets = zip(set_names(len(self.sets)), cast(Iterable[PooledSet], self.sets))
        return [site for prefix, pooled in sets for site in pooled.site_modules(prefix)]

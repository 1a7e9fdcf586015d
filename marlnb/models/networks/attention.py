"""Attention: self-attention over entities, a pool, hidden layers and a head; registered as `attention`.

Source: Vaswani et al. 2017, section 3.2 (arXiv:1706.03762); over entities, Zambaldi et al. 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from marlnb.config import NETWORKS
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.attention import AttentionConfig
from marlnb.models.networks.entities import EntityLayer, Pool, each_entity, find_entities, set_names
from marlnb.models.networks.inputs import join
from marlnb.models.networks.layers import AgentLinear
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.specs import InputSpec


class AttentionWeights(nn.Module):
    """A = softmax(Q K^T / sqrt(d)), `[..., n_agents, head * query * key]`; each query's weights sum to 1. A site."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """query and key `[..., n_agents, head, entity, unit]`."""
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        return weights.flatten(-3)


class Attended(nn.Module):
    """The entities after attention, x + W_o A V, `[..., n_agents, entity * unit]`. A site."""

    def __init__(self, n_agents: int, units: int, *, shared: bool) -> None:
        super().__init__()
        self.output = AgentLinear(n_agents, units, units, shared=shared)

    def forward(self, entities: Tensor, attended: Tensor) -> Tensor:
        """entities `[..., n_agents, entity, unit]`; attended, A V, `[..., n_agents, head, entity, unit of a head]`."""
        return (entities + each_entity(self.output, attended.transpose(-3, -2).flatten(-2))).flatten(-2)


class SelfAttention(nn.Module):
    """`[..., n_agents, entity * unit]` -> the same; equals `nn.MultiheadAttention` plus the input, for each agent."""

    def __init__(self, n_agents: int, n_entities: int, units: int, n_heads: int, *, shared: bool) -> None:
        super().__init__()
        self.n_entities, self.units, self.n_heads = n_entities, units, n_heads
        self.projection = AgentLinear(n_agents, units, 3 * units, shared=shared, blocks=3)
        self.weights = AttentionWeights()
        self.attended = Attended(n_agents, units, shared=shared)

    def forward(self, x: Tensor) -> Tensor:
        entities = x.unflatten(-1, (self.n_entities, self.units))
        projected = each_entity(self.projection, entities).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2) for part in projected)
        weights = self.weights(query, key).unflatten(-1, (self.n_heads, self.n_entities, self.n_entities))
        return self.attended(entities, weights @ value)  # type: ignore[no-any-return]


@NETWORKS.register(AttentionConfig)
class AttentionNetwork(HiddenNetwork):
    """Embeds the entities of every set, applies self-attention and a pool, then hidden layers and a linear head."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: AttentionConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        sets, self.rest = find_entities(config.name, inputs)
        self.columns = [each.columns for each in sets]
        self.embeddings = nn.ModuleList(EntityLayer(n_agents, each.n, each.size, config.units, config) for each in sets)
        n_entities = sum(each.n for each in sets)
        self.attention = SelfAttention(n_agents, n_entities, config.units, config.heads, shared=config.share_parameters)
        self.pool = Pool(n_entities, config.pooling)
        self.add_head(self.add_hidden(config.units + self.rest.n_features))

    def embed(self, x: Tensor) -> Tensor:
        entities = join([embed(columns.take(x)) for embed, columns in zip(self.embeddings, self.columns)])
        return join([self.pool(self.attention(entities)), self.rest.take(x)])

    def first_sites(self) -> list[SiteModule]:
        embeddings, attention = cast(Sequence[EntityLayer], self.embeddings), self.attention
        return [
            *(layer.site(f"{prefix}entity") for prefix, layer in zip(set_names(len(embeddings)), embeddings)),
            ("attention", attention.weights, attention.n_heads * attention.n_entities**2, "hidden"),
            ("attended", attention.attended, attention.n_entities * attention.units, "hidden"),
            ("pooled", self.pool, attention.units, "hidden"),
        ]

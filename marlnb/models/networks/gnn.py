"""GNN: hidden layers, rounds of messages between the agents of a group, and a head; registered as `gnn`.

    gatv2   e_ij = a . LeakyReLU(W_l x_j + W_r x_i)     alpha_ij = softmax_j e_ij
            x_i' = act(W_o x_i + sum_j alpha_ij W_l x_j)
    graph   x_i' = act(W_o x_i + sum_{j in N(i)} W_h x_j)

Source: Brody et al. 2022, equations 1 and 7 (arXiv:2105.14491) for GATv2; Morris et al. 2019, equation 5
(arXiv:1810.02244) for graph convolutions.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.config import NETWORKS
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.network import ActivationName
from marlnb.models.networks.layers import AgentLinear, activation
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.specs import InputSpec

LEAK = 0.2  # slope of the leaky rectifier, as in the paper


class Messaging(nn.Module):
    """One round of messages: `[..., n_agents, in]` -> `[..., n_agents, unit]`; a site.

    `graph[i, j]` is whether agent i receives agent j's message, bool `[..., receiver, sender]`; False on the diagonal.
    """

    def __init__(self, units: int, act: ActivationName) -> None:
        super().__init__()
        self.units = units
        self.activation = activation(act)

    @abstractmethod
    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """x `[..., agent, in]`, graph `[..., receiver, sender]` -> `[..., agent, unit]`."""

    def sites(self, number: int) -> list[SiteModule]:
        """The sites of round `number`, in forward order."""
        return [(f"messages_{number}", self, self.units, "hidden")]


class Edges(nn.Module):
    """Attention weights alpha_ij, `[..., receiver, head * sender]`; each head's sum to 1. A site."""

    def __init__(self, n_agents: int, n_heads: int, units: int, *, shared: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.score = nn.Parameter(torch.empty(*(() if shared else (n_agents,)), n_heads, units // n_heads))
        nn.init.normal_(self.score, std=(units // n_heads) ** -0.5)

    def forward(self, heard: Tensor, hearing: Tensor, graph: Tensor) -> Tensor:
        """heard, hearing `[..., n_agents, head, unit]` -> softmax weights over the senders and the agent itself."""
        score = self.score if self.score.ndim == 2 else self.score.unsqueeze(-3)
        met = F.leaky_relu(heard.unsqueeze(-4) + hearing.unsqueeze(-3), LEAK)  # [..., hearing, heard, head, unit]
        logits = (met * score).sum(-1)
        known = graph | torch.eye(graph.shape[-1], dtype=torch.bool, device=graph.device)
        weights = logits.masked_fill(~known.unsqueeze(-1), -torch.inf).softmax(-2)
        return weights.transpose(-2, -1).flatten(-2)


class GATv2(Messaging):
    """The agent's own input, and all messages weighted by an attention over (receiver, sender) pairs.

    The residual term W_o x_i is not in the paper; it keeps the agents of a full graph from becoming equal.
    """

    def __init__(
        self, n_agents: int, in_features: int, units: int, act: ActivationName, *, heads: int, shared: bool
    ) -> None:
        super().__init__(units, act)
        self.n_agents = n_agents
        self.own = AgentLinear(n_agents, in_features, units, shared=shared)
        self.heard = AgentLinear(n_agents, in_features, units, shared=shared)
        self.hearing = AgentLinear(n_agents, in_features, units, shared=shared)
        self.edges = Edges(n_agents, heads, units, shared=shared)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        n_heads = self.edges.n_heads
        heard, hearing = (layer(x).unflatten(-1, (n_heads, -1)) for layer in (self.heard, self.hearing))
        weights = self.edges(heard, hearing, graph).unflatten(-1, (n_heads, -1))
        taken = torch.einsum("...ihj,...jhu->...ihu", weights, heard).flatten(-2)
        return self.activation(self.own(x) + taken)  # type: ignore[no-any-return]

    def sites(self, number: int) -> list[SiteModule]:
        return [(f"edges_{number}", self.edges, self.edges.n_heads * self.n_agents, "hidden"), *super().sites(number)]


class GraphConv(Messaging):
    """The agent's own input, and the sum of all received messages."""

    def __init__(self, n_agents: int, in_features: int, units: int, act: ActivationName, *, shared: bool) -> None:
        super().__init__(units, act)
        self.own = AgentLinear(n_agents, in_features, units, shared=shared)
        self.heard = AgentLinear(n_agents, in_features, units, shared=shared)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        return self.activation(self.own(x) + graph.to(x.dtype) @ self.heard(x))  # type: ignore[no-any-return]


@NETWORKS.register(GNNConfig)
class GNN(HiddenNetwork):
    """Hidden layers for each agent, rounds of messages, a linear head."""

    graph: Tensor

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: GNNConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        self.cross_agent = n_agents > 1
        self.positions, self.n_neighbors = list(config.positions), config.n_neighbors
        self.register_buffer("graph", ~torch.eye(n_agents, dtype=torch.bool), persistent=False)
        widths = [self.add_hidden(inputs.features), *config.rounds]
        self.rounds = nn.ModuleList(build_round(n_agents, *pair, config) for pair in itertools.pairwise(widths))
        self.add_head(widths[-1])

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        graph = self.graph
        if 0 < self.n_neighbors < self.n_agents - 1:
            graph = nearest_others(x[..., self.positions], self.n_neighbors)
        x = self.hidden(x)
        for messaging in self.rounds:
            x = messaging(x, graph)
        return self.head(x), None

    def readers(self) -> list[AgentLinear]:
        return [module for module in self.rounds[0].children() if isinstance(module, AgentLinear)]

    def inner_sites(self) -> list[SiteModule]:
        rounds = enumerate(cast(Iterable[Messaging], self.rounds), start=1)
        return [site for number, messaging in rounds for site in messaging.sites(number)]


def build_round(n_agents: int, in_features: int, units: int, config: GNNConfig) -> Messaging:
    """One round of messages of the kind that `config.messages` names."""
    act, shared = config.activation, config.share_parameters
    if config.messages == "graph":
        return GraphConv(n_agents, in_features, units, act, shared=shared)
    return GATv2(n_agents, in_features, units, act, heads=config.heads, shared=shared)


def nearest_others(position: Tensor, n: int) -> Tensor:
    """Whether `other` is among an agent's `n` nearest, bool `[..., agent, other]`, by position `[..., agent, axis]`."""
    distance = (position.unsqueeze(-2) - position.unsqueeze(-3)).square().sum(-1)
    itself = torch.eye(position.shape[-2], dtype=torch.bool, device=position.device)
    nearest = distance.masked_fill(itself, torch.inf).argsort(dim=-1, stable=True)[..., :n]
    return torch.zeros_like(distance, dtype=torch.bool).scatter(-1, nearest, True)

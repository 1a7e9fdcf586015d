"""Networks as BenchMARL's Cnn and Deepsets build them of chains of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from marlnb.models.adapters.stacked import StackedNetwork
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.network import Network

POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-3),
    "add": lambda x: x.sum(-3),
    "mean": lambda x: x.mean(-3),
    "max": lambda x: x.amax(-3),
    "min": lambda x: x.amin(-3),
    "mul": lambda x: x.prod(-3),
}


class CNNChain(Network):
    """Maps an agent's image with `trunk`, appends its other features, and maps both with `mlp`.

    Sites are those of the trunk and the MLP, numbered in one sequence: hidden_<n convolutions> is the flattened output
    of the last convolution. The images before it are not sites.

    Args:
        trunk: reads images with channels first; a centralised trunk reads all agents' images as channels.
        mlp: its agent axis has size 1 if a centralised trunk is shared: one forward pass then serves all agents.
        shape: of one image, `(x, y, channel)`, channels last; uint8 values are not scaled.
        n_others: number of features after the image.
    Source: benchmarl.models.cnn.Cnn.
    """

    def __init__(self, trunk: StackedNetwork, mlp: StackedNetwork, shape: Sequence[int], n_others: int) -> None:
        super().__init__()
        self.trunk, self.mlp, self.shape, self.n_others = trunk, mlp, tuple(shape), n_others
        self.n_agents, self.out_features = trunk.n_agents, mlp.out_features
        self.centralised, self.shared_forward = trunk.centralised, trunk.shared_forward
        self.cross_agent = trunk.cross_agent or mlp.cross_agent
        self.image_size = int(torch.Size(self.shape).numel())
        self.in_features = (self.image_size + n_others) * (self.n_agents if self.centralised else 1)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: a flattened image, then the other features."""
        x = x if x.is_floating_point() else x.float()
        image = x[..., : self.image_size].unflatten(-1, self.shape).movedim(-1, -3).flatten(-3)
        image_features, others = self.trunk(image)[0], x[..., self.image_size :]
        if self.trunk.shared_forward:
            image_features, others = image_features[..., :1, :], others.flatten(-2).unsqueeze(-2)
        output = self.mlp(torch.cat((image_features, others), dim=-1))[0]
        return output.expand(*output.shape[:-2], self.n_agents, -1), None

    def site_modules(self) -> list[SiteModule]:
        trunk_sites = self.trunk.site_modules()
        sites: list[SiteModule] = [(name, module, units, "hidden") for name, module, units, _ in trunk_sites]
        n_convolutions = len(self.trunk.layers)
        for name, module, units, kind in self.mlp.site_modules():
            stem, _, number = name.rpartition("_")
            sites.append((f"{stem}_{n_convolutions + int(number)}" if stem == "hidden" else name, module, units, kind))
        return sites


class PooledSets(Network):
    """A function of a set: `y = whole(pool_i(each(x_i)), others)`.

    Each agent observes a set, or the agents are the elements of one set. Sites are `pooled` and the layers of `whole`.
    The outputs of `each` have no agent axis, so they are not sites.

    Args:
        each: reads one element.
        whole: reads the pool, followed by the agent's other features.
        pool: a name in POOLS.
        shape: of an agent's set, `(element, feature)`; None: the agents are the elements.
        n_others: number of features after the set.
        n_agents: number of agents; over a set of agents, one network may serve all agents, with one row.
    Source: benchmarl.models.deepsets.Deepsets (arXiv:1703.06114).
    """

    def __init__(
        self,
        each: StackedNetwork,
        whole: StackedNetwork,
        pool: str,
        *,
        shape: Sequence[int] | None,
        n_others: int,
        n_agents: int,
    ) -> None:
        super().__init__()
        self.each, self.whole, self.pool, self.pooled = each, whole, POOLS[pool], nn.Identity()
        self.shape, self.n_agents, self.out_features = shape, n_agents, whole.out_features
        self.centralised = shape is None
        self.cross_agent = shape is None and n_agents > 1
        self.shared_forward = shape is None and each.n_agents == 1 < n_agents
        self.set_size = each.in_features if shape is None else int(torch.Size(shape).numel())
        self.in_features = n_agents * each.in_features if shape is None else self.set_size + n_others

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """x `[..., agent, feature]`: a flattened set, then the other features; or each agent is an element."""
        x = x if x.is_floating_point() else x.float()
        if self.shape is None:
            elements, others = x.unsqueeze(-2).expand(*x.shape[:-1], self.each.n_agents, -1), x[..., :1, :0]
            others = others.expand(*x.shape[:-2], self.each.n_agents, 0)
        else:  # [..., element, agent, feature]
            elements = x[..., : self.set_size].unflatten(-1, tuple(self.shape)).transpose(-3, -2)
            others = x[..., self.set_size :]
        pooled = self.pooled(self.pool(self.each(elements)[0]))
        output = self.whole(torch.cat((pooled, others), dim=-1))[0]
        return output.expand(*output.shape[:-2], self.n_agents, -1), None

    def site_modules(self) -> list[SiteModule]:
        return [("pooled", self.pooled, self.each.out_features, "hidden"), *self.whole.site_modules()]

"""PooledSets: a map of each element of a set, their pool, and a map of it, as BenchMARL's Deepsets have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from marlnb.models.adapters.stacked import StackedNetwork
from marlnb.models.hooks.sites import Site, SiteKind
from marlnb.models.networks.network import Network

POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-3),
    "add": lambda x: x.sum(-3),
    "mean": lambda x: x.mean(-3),
    "max": lambda x: x.amax(-3),
    "min": lambda x: x.amin(-3),
    "mul": lambda x: x.prod(-3),
}


class PooledSets(Network):
    """The elements of each agent's set, or the agents themselves as elements of one set, pooled.

    Sites are `pooled` and the layers of `whole`; what `each` makes of one element has no agent axis, and is none.

    Args:
        each: reads one element; whole: reads the pool, and after it what else an agent is given.
        pool: of POOLS.
        shape: of a set, `(element, feature)`; None: the agents are the elements, their rows the features.
        n_others: features after a set's.
        n_agents: of the group; beside a set of agents there may be one network for all, of one row.
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
        """x `[..., agent, feature]`: a set flattened, then the others; or an agent as an element."""
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

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        return [("pooled", self.pooled, self.each.out_features, "hidden"), *self.whole.site_modules()]

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        return super().sites(prefix, n_agents, shared_forward=shared_forward or self.shared_forward)

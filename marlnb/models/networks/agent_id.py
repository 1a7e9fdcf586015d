"""The agent's index as an input: how agents that share weights can still learn different things."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.models.hooks.sites import Site, SiteModule
from marlnb.models.networks.network import Network


class AgentId(Network):
    """A network that reads the agent's index, one-hot, after everything else."""

    one_hot: Tensor

    def __init__(self, inner: Network) -> None:
        super().__init__()
        self.inner = inner
        self.n_agents, self.out_features = inner.n_agents, inner.out_features
        self.in_features = inner.in_features - inner.n_agents
        self.recurrent_shape, self.cross_agent = inner.recurrent_shape, inner.cross_agent
        self.register_buffer("one_hot", torch.eye(inner.n_agents), persistent=False)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.inner(self._with_id(x), recurrent)  # type: ignore[no-any-return]

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        return self.inner.sequence(self._with_id(x), recurrent, is_init, acting)

    def site_modules(self) -> list[SiteModule]:
        return self.inner.site_modules()

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        return self.inner.sites(prefix, n_agents, shared_forward=shared_forward)

    def _with_id(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.one_hot.expand(*x.shape[:-1], self.n_agents)), dim=-1)

"""A network whose products are computed in bfloat16, and whatever is around it in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.models.hooks.sites import Site, SiteModule
from marlnb.models.networks.network import Network


class LowPrecision(Network):
    """A network under autocast: float32 weights, inputs and outputs; products and hidden units in `dtype`."""

    dtype = torch.bfloat16

    def __init__(self, inner: Network) -> None:
        super().__init__()
        self.inner = inner
        self.n_agents, self.in_features, self.out_features = inner.n_agents, inner.in_features, inner.out_features
        self.recurrent_shape, self.cross_agent = inner.recurrent_shape, inner.cross_agent
        self.shared_forward, self.centralised = inner.shared_forward, inner.centralised

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        with self._autocast(x):
            output, after = self.inner(x, recurrent)
        return _full(output, after)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        with self._autocast(x):
            output, after = self.inner.sequence(x, recurrent, is_init, acting)
        return _full(output, after)

    def site_modules(self) -> list[SiteModule]:
        return self.inner.site_modules()

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        return self.inner.sites(prefix, n_agents, shared_forward=shared_forward)

    def _autocast(self, x: Tensor) -> torch.autocast:
        return torch.autocast(x.device.type, self.dtype, cache_enabled=False)  # a CUDA graph would keep old weights


def _full(output: Tensor, after: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return output.float(), None if after is None else after.float()

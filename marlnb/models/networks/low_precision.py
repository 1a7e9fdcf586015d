"""A network whose products are computed in bfloat16, and whatever is around it in float32."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from marlnb.models.hooks.sites import Site, SiteModule
from marlnb.models.networks.network import Network

ROWS, UNITS = 512, 256  # of the products that `bfloat16_speed` measures
REPETITIONS = 3


class LowPrecision(Network):
    """A network under autocast: float32 weights, inputs and outputs; products and hidden units in `dtype`.

    Attributes:
        enabled: False: all in float32 (set by `full_precision`).
    """

    dtype = torch.bfloat16
    enabled = True

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
        # cache_enabled: a CUDA graph would keep old weights
        return torch.autocast(x.device.type, self.dtype, enabled=self.enabled, cache_enabled=False)


def _full(output: Tensor, after: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return output.float(), None if after is None else after.float()


@contextmanager
def full_precision(modules: nn.Module) -> Iterator[None]:
    """Inside the block the networks among `modules` compute in float32."""
    networks = [network for network in modules.modules() if isinstance(network, LowPrecision)]
    try:
        for network in networks:
            network.enabled = False
        yield
    finally:
        for network in networks:
            network.enabled = True


def bfloat16_speed() -> float:
    """How many times as fast as in float32 this processor computes a product in bfloat16; takes milliseconds."""
    return _product_s(torch.float32) / _product_s(LowPrecision.dtype)


@torch.no_grad()
def _product_s(dtype: torch.dtype) -> float:
    x, weight = torch.ones(ROWS, UNITS, dtype=dtype), torch.ones(UNITS, UNITS, dtype=dtype)
    seconds = []
    for _ in range(1 + REPETITIONS):
        start = time.perf_counter()
        nn.functional.linear(x, weight)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])  # the first one prepares the operator

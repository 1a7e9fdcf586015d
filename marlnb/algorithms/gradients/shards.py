"""The gradient of a minibatch on several cores: each thread takes a part of the samples.

torch's own threads divide single operations, which are too small for that in most networks of agents: a second thread
gained 10%. Here a thread computes the loss of its part and the gradient of that, with few points to meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch
from torch import Tensor

from marlnb.algorithms.gradients.compiled import CompiledGradient, Loss

MIN_ROWS = 256  # of a part, counted in samples times agents; smaller ones gain nothing


class ShardedLoss:
    """A loss that is a mean over the agents that acted, and its gradient, on `torch.get_num_threads()` threads.

        grad L = sum over parts k of W_k / W grad L_k

    with W_k the number of agents that acted in part k, and W their sum. The parts depend on the number of threads and
    the size of the minibatch only, and are added in their order, so the same settings give the same bits.

    Use it in a `with` block: its threads end with the block, and torch has its number of threads again.

    Args:
        loss: of a minibatch; returns a scalar, and metrics that are such means too.
        parameters: of which the gradient is computed.
        n_rows: samples times agents in a minibatch.
        divide: whether the loss may be computed in parts; otherwise torch's own threads divide the operations.
        compiled: computes the same for minibatches of its sizes, with its own threads.
    """

    def __init__(
        self,
        loss: Loss,
        parameters: Sequence[Tensor],
        *,
        n_rows: int,
        divide: bool,
        compiled: CompiledGradient | None = None,
    ) -> None:
        self._loss, self._parameters, self._compiled = loss, list(parameters), compiled
        self._n_threads = torch.get_num_threads()
        self.n_shards = max(1, min(self._n_threads, n_rows // MIN_ROWS)) if divide and compiled is None else 1
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> ShardedLoss:
        if self.n_shards > 1:
            threads = max(1, self._n_threads // self.n_shards)  # a setting of each thread
            torch.set_num_threads(threads)
            self._pool = ThreadPoolExecutor(self.n_shards - 1, "shard", torch.set_num_threads, (threads,))
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            torch.set_num_threads(self._n_threads)

    def gradients(self, minibatch: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The gradient of each parameter, and the metrics."""
        if self._compiled is not None and self._compiled.fits(minibatch):
            return self._compiled(minibatch)
        if self._pool is None:
            return self._part(minibatch, None)
        first, *others = zip(*_parts(minibatch, self.n_shards))
        futures = [self._pool.submit(self._part, *part) for part in others]
        gradients, metrics = self._part(*first)
        for future in futures:
            more, more_metrics = future.result()
            torch._foreach_add_(gradients, more)
            metrics = {name: value + more_metrics[name] for name, value in metrics.items()}
        return gradients, metrics

    def _part(self, minibatch: Mapping[str, Tensor], share: Tensor | None) -> tuple[list[Tensor], dict[str, Tensor]]:
        loss, metrics = self._loss(minibatch)
        if share is not None:
            loss, metrics = loss * share, {name: value * share for name, value in metrics.items()}
        # autograd.grad, not backward(): nothing accumulates in .grad, so there is nothing to zero
        return list(torch.autograd.grad(loss, self._parameters)), metrics


def _parts(minibatch: Mapping[str, Tensor], n: int) -> tuple[list[dict[str, Tensor]], Tensor]:
    """`n` parts of a minibatch `[sample, ...]`, and the share of each in the mean, `[part]`."""
    n_samples = len(minibatch["log_prob"])
    bounds = list(pairwise(n_samples * k // n for k in range(n + 1)))
    parts = [{key: value[start:stop] for key, value in minibatch.items()} for start, stop in bounds]
    if "weight" in minibatch:
        counts = torch.stack([part["weight"].sum() for part in parts])
    else:
        counts = torch.tensor([float(stop - start) for start, stop in bounds])
    return parts, counts / counts.sum().clamp(min=1)

"""The matrix products of a training run alone, each with the shape, rows and layout that the training computes it with.

A rate of one kind of product does not hold for the others: the sum over all rows of a weight's gradient is slower than
a layer's output, most of all with several threads, and a critic's head only moves memory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from marlnb.models.networks.fast.linear import weight_gradient

CALLS = 5
Product = Callable[[], object]


@dataclass(frozen=True)
class ProductSizes:
    """Of a training run whose actor and critic have hidden layers of one width.

    Attributes:
        features: of an observation.
        width: of the two hidden layers.
        outputs: of the actor's and of the critic's head.
        rollout_rows: agents that act at once.
        minibatch_rows: agents and time steps of a minibatch.
    """

    features: int
    width: int
    outputs: tuple[int, int]
    rollout_rows: int
    minibatch_rows: int

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the layers of both networks."""
        widths = [(self.features, self.width, self.width, n) for n in self.outputs]
        return [layer for network in widths for layer in itertools.pairwise(network)]


def rollout_products(sizes: ProductSizes, device: str) -> list[Product]:
    """Each layer's output, of the actor to act and of the critic to value."""
    return [forward(sizes.rollout_rows, *layer, device) for layer in sizes.layers]


def epoch_products(sizes: ProductSizes, device: str) -> list[Product]:
    """Of one minibatch: each layer's output and its weights' gradient, and the gradient of each hidden layer."""
    products = []
    for n_in, n_out in sizes.layers:
        rows = sizes.minibatch_rows
        products += [forward(rows, n_in, n_out, device), of_weights(rows, n_in, n_out, device)]
        if n_in != sizes.features:  # nothing asks for the gradient of an observation
            products.append(of_inputs(rows, n_in, n_out, device))
    return products


def forward(rows: int, n_in: int, n_out: int, device: str) -> Product:
    x, weight = torch.rand(rows, n_in, device=device), torch.rand(n_out, n_in, device=device)
    return lambda: F.linear(x, weight)


def of_inputs(rows: int, n_in: int, n_out: int, device: str) -> Product:
    gradient, weight = torch.rand(rows, n_out, device=device), torch.rand(n_out, n_in, device=device)
    return lambda: gradient @ weight


def of_weights(rows: int, n_in: int, n_out: int, device: str) -> Product:
    """By the fastest way that is known: on a CPU each thread sums a part of the rows."""
    gradient, x = torch.rand(rows, n_out, device=device), torch.rand(rows, n_in, device=device)
    on_cpu = torch.device(device).type == "cpu"
    return lambda: weight_gradient(gradient, x) if on_cpu else gradient.t() @ x


def seconds_of_products(sizes: ProductSizes, epochs: int, device: str) -> float:
    """Seconds of a training's products for one agent and time step."""
    rollout = sum(map(seconds_of, rollout_products(sizes, device))) / sizes.rollout_rows
    epoch = sum(map(seconds_of, epoch_products(sizes, device))) / sizes.minibatch_rows
    return rollout + epochs * epoch


def seconds_of(call: Product) -> float:
    """Of one call, after a first one; the mean of CALLS."""
    call()
    start = now()
    for _ in range(CALLS):
        call()
    return (now() - start) / CALLS


def now() -> float:
    """Seconds, after everything that a GPU was asked to do is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()

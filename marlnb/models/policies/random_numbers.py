"""Random numbers of policies and losses: drawn from generators, or given as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class RandomSpec(NamedTuple):
    """Random numbers of one distribution: shape, type, and the tensor's method that draws them."""

    shape: torch.Size
    dtype: torch.dtype
    method: Callable[..., Tensor]

    def __call__(self, generator: Generators) -> Tensor:
        return fill(torch.empty(self.shape, dtype=self.dtype), self.method, generator)


@dataclass
class RandomInputs:
    """Stands in for a generator, so that the random numbers of a function can become its arguments.

    Attributes:
        given: the numbers, in the order of the draws; None: they are drawn here, and torch's generators stay as they
            are.
        noted: the draws so far, if the numbers were not given.
    """

    given: Iterator[Tensor] | None = None
    noted: list[RandomSpec] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._generator = torch.Generator()

    def fill(self, x: Tensor, method: Callable[..., Tensor]) -> Tensor:
        if self.given is not None:
            return x.copy_(next(self.given))
        self.noted.append(RandomSpec(x.shape, x.dtype, method))
        return method(x, generator=self._generator)


Generators = torch.Generator | Sequence[torch.Generator] | RandomInputs | None
"""Of random numbers: one generator; several, each for its equal part of the first axis; None: torch's global one."""


def fill(x: Tensor, method: Callable[..., Tensor], generator: Generators) -> Tensor:
    """Fills x with random numbers by one of the tensor's methods, such as `Tensor.normal_`."""
    if isinstance(generator, RandomInputs):
        return generator.fill(x, method)
    if isinstance(generator, Sequence):
        for part, of_part in zip(x.chunk(len(generator)), generator, strict=True):
            method(part, generator=of_part)
        return x
    return method(x, generator=generator)

"""What a selection reads and answers: members with their fitness, and from whom each place continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Scored:
    """A member at the end of a generation.

    Attributes:
        place: its number in the population, from 0.
        fitness: the mean of its last evaluations; -inf if its training diverged.
        generation: that was evaluated, from 0.
        options: by path, as `algorithm.lr`, the values that can mutate.
    """

    place: int
    fitness: float
    generation: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Successor:
    """From whom one place of the next generation continues.

    Attributes:
        parent: place of the member whose weights, optimizer and buffers it continues with.
        mutate: whether it may be mutated; False: it continues as it is.
        options_of: place of the member whose options it gets; None: the parent's. With its own place, it takes over
            weights only.
    """

    parent: int
    mutate: bool = False
    options_of: int | None = None


def ranked(rng: np.random.Generator, members: Sequence[Scored]) -> list[Scored]:
    """The members from the fittest to the least fit; ties are in random order."""
    order = rng.permutation(len(members))
    return sorted((members[k] for k in order), key=lambda member: member.fitness, reverse=True)

"""The rows of an MPE world: all its numbers are rows of one tensor `[row, env]`, and an observation selects rows.

This module does not import torch: a scenario states its observations as feature names and row numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

AXES = ("x", "y")
Feature = tuple[str, int]


@dataclass(frozen=True)
class Body:
    """One agent or landmark, with mpe2's defaults; sizes and speeds in world units (the start square is 2 wide)."""

    name: str
    size: float = 0.05
    collide: bool = True
    movable: bool = True
    silent: bool = True
    accel: float = 5.0
    max_speed: float = float("inf")


class Layout:
    """Named blocks of rows, in the given order, each with a shape. Each constant value has one row.

    Attributes:
        n_observable: number of rows, counted from the first, that an observation can select; then come `unobservable`
            blocks.
    """

    def __init__(
        self,
        blocks: Mapping[str, Sequence[int]],
        constants: Sequence[float],
        unobservable: Mapping[str, Sequence[int]],
    ) -> None:
        self.constants = tuple(constants)
        observable = {**blocks, "constant": (len(self.constants),)}
        self.shapes = {name: tuple(shape) for name, shape in (observable | dict(unobservable)).items()}
        self.starts: dict[str, int] = {}
        self.n_rows = 0
        for name, shape in self.shapes.items():
            self.starts[name] = self.n_rows
            self.n_rows += prod(shape)
        self.n_observable = self.starts["constant"] + len(self.constants)

    def row(self, block: str, *index: int) -> int:
        """The row of one element of a block."""
        offset = 0
        for i, length in zip(index, self.shapes[block], strict=True):
            offset = offset * length + i
        return self.starts[block] + offset

    def constant(self, value: float) -> int:
        return self.row("constant", self.constants.index(value))

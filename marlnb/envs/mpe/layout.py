"""Where each number of an MPE world lies: one tensor of rows `[row, env]`, so that an observation is a choice of rows.

Free of torch: a scenario states its observations as feature names and row numbers.
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
    """Blocks of rows by name, in the order given, each with a shape; constants have one row a value."""

    def __init__(self, blocks: Mapping[str, Sequence[int]], constants: Sequence[float]) -> None:
        self.constants = tuple(constants)
        self.shapes = {**{name: tuple(shape) for name, shape in blocks.items()}, "constant": (len(self.constants),)}
        self.starts: dict[str, int] = {}
        self.n_rows = 0
        for name, shape in self.shapes.items():
            self.starts[name] = self.n_rows
            self.n_rows += prod(shape)

    def row(self, block: str, *index: int) -> int:
        """The row of one element of a block."""
        offset = 0
        for position, length in zip(index, self.shapes[block], strict=True):
            offset = offset * length + position
        return self.starts[block] + offset

    def constant(self, value: float) -> int:
        return self.row("constant", self.constants.index(value))

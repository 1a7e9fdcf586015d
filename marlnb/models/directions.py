"""Direction: where in a site's space a concept lies. Decoders and dictionaries find such; edits go along or against."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from marlnb.errors import ShapeError


@dataclass(frozen=True)
class Direction:
    """A unit vector in the space of one agent's units at a site, in the activation's own units.

    Attributes:
        site: as `listener/actor/hidden_1`; agent: its name.
        vector: `[unit]`, of length 1.
        mean, scale: mean and standard deviation of the activations' projections onto it, where it was found.
        concept: what lies along it, as `goal_dx` or `goal = red`.
    """

    site: str
    agent: str
    vector: tuple[float, ...]
    mean: float
    scale: float
    concept: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "vector", tuple(float(x) for x in self.vector))
        length = sqrt(sum(x * x for x in self.vector))
        if abs(length - 1) > 1e-3:
            raise ShapeError(f"a direction has length 1; that of {self.concept!r} at {self.site!r} has {length:.4g}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

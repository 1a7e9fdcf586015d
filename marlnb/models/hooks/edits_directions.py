"""Edits along directions: steering adds one, erasing projects some out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks.directions import Direction
from marlnb.models.hooks.edit import EDITS, Change, Edit, Place


@EDITS.register("steer")
@dataclass(frozen=True)
class Steer(Edit):
    """Adds `dose` standard deviations of a direction: `dose * scale * vector`.

    The direction is of the site's chosen units. It moves every agent that `agents` names, not only its own.
    """

    dose_field: ClassVar[str | None] = "dose"

    direction: Direction | None = None
    dose: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction is None:
            raise ConfigError("steering takes a Direction, as decoding.direction() gives; none was given")
        object.__setattr__(self, "direction", as_direction(self.direction))

    def begin(self, place: Place) -> Change:
        step = vectors([_given(self.direction)], place)[0] * (_given(self.direction).scale * self.dose)
        return lambda values, whole: values + step.to(values)


@EDITS.register("erase")
@dataclass(frozen=True)
class Erase(Edit):
    """Projects directions out of the activation: nothing that is linear in it can read them any more.

    Attributes:
        directions: one or several; they need not be orthogonal.
        keep_mean: whether the projections are held at the directions' means, where they were found, instead of zero:
            what is downstream then sees a usual value.
    """

    directions: tuple[Direction, ...] = ()
    keep_mean: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.directions,) if isinstance(self.directions, Direction | Mapping) else self.directions
        if not given:
            raise ConfigError("erasing takes one Direction or several, as decoding.direction() gives; none was given")
        object.__setattr__(self, "directions", tuple(as_direction(direction) for direction in given))

    def begin(self, place: Place) -> Change:
        stacked = vectors(self.directions, place).double()
        left, sizes, right = torch.linalg.svd(stacked, full_matrices=False)
        kept = sizes > 1e-6 * sizes[0]  # directions that coincide count once
        basis = right[kept]
        means = torch.tensor([direction.mean if self.keep_mean else 0.0 for direction in self.directions]).double()
        held = (left[:, kept].T @ means / sizes[kept]) @ basis
        basis, held = basis.float(), held.float()

        def project(values: Tensor, whole: Tensor) -> Tensor:
            rows = basis.to(values)
            return values - (values @ rows.T) @ rows + held.to(values)

        return project


def as_direction(given: Direction | Mapping[str, object]) -> Direction:
    return given if isinstance(given, Direction) else Direction(**given)  # type: ignore[arg-type]


def vectors(directions: tuple[Direction, ...] | list[Direction], place: Place) -> Tensor:
    """`[direction, unit]`.

    Raises:
        ShapeError: a direction of another number of units than the place has.
    """
    for direction in directions:
        if len(direction.vector) != len(place.units):
            raise ShapeError(
                f"the direction of {direction.concept!r} has {len(direction.vector)} units; "
                f"{len(place.units)} are edited at {place.site.name!r}"
            )
    return torch.tensor([direction.vector for direction in directions])


def _given(direction: Direction | None) -> Direction:
    assert direction is not None  # __post_init__ saw to it
    return direction

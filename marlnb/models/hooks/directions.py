"""Direction: a concept's direction in a site's activation space, and the edits along it: steer, erase, clamp and raise.

Decoders and dictionaries find directions. For an activation `h`, a direction `v` of length 1 and its mean `m` and
standard deviation `s`:

    steer    h' = h + strength * s * v
    erase    h' = h - V^T V h + V^T (V V^T)^-1 m    (V: one direction a row; m = 0 unless keep_mean)
    clamp    h' = h + (value - v . h) v
    raise    h' = h + max(0, value - v . h) w       (w = v unless another direction is given)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from math import sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor

from marlnb.display.notebook_html import facts_html
from marlnb.errors import ConfigError, ShapeError, shown, unknown
from marlnb.models.hooks.edit import EDITS, Change, Edit, EditTarget, Window, plain
from marlnb.values import checked_number

Agents = tuple[int | str, ...] | str | None


@dataclass(frozen=True, repr=False)
class Direction:
    """A unit vector in the space of one agent's units at a site, in the activation's own units.

    Attributes:
        site: site name, such as `listener/actor/hidden_1`.
        agent: agent name.
        vector: `[unit]`, of length 1.
        mean: mean of the activations' projections onto it, on the data that it was found in.
        scale: standard deviation of these projections.
        concept: what it represents, such as `goal_dx` or `goal = red`.
    """

    site: str
    agent: str
    vector: tuple[float, ...]
    mean: float
    scale: float
    concept: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "vector", tuple(float(x) for x in self.vector))
        for name in ("mean", "scale"):
            number = checked_number(plain(getattr(self, name)), float, f"{name}= of a direction")
            object.__setattr__(self, name, number)
        length = sqrt(sum(x * x for x in self.vector))
        if not abs(length - 1) <= 1e-3:  # nan as well
            raise ShapeError(f"a direction has length 1; that of {self.concept!r} at {self.site!r} has {length:.4g}")

    def __repr__(self) -> str:
        largest = ", ".join(f"unit {unit} {weight:+.2f}" for unit, weight in self._largest(3))
        return (
            f"<Direction of {self.concept or 'no named concept'}: {len(self.vector)} units of {self.agent} at "
            f"{self.site}, mean {self.mean:.3g}, standard deviation {self.scale:.3g}, largest weights {largest}>"
        )

    def _repr_html_(self) -> str:
        facts = {
            "units": f"{len(self.vector)} of {self.agent} at {self.site}",
            "mean of the projections": f"{self.mean:.3g}",
            "standard deviation": f"{self.scale:.3g}",
            "largest weights": ", ".join(f"unit {unit} {weight:+.2f}" for unit, weight in self._largest(8)),
        }
        return facts_html(f"Direction of {self.concept or 'no named concept'}", facts)

    def _largest(self, n: int) -> list[tuple[int, float]]:
        """(unit, weight) of at most n weights that are not 0, those farthest from it."""
        weights = ((unit, weight) for unit, weight in enumerate(self.vector) if weight)
        return sorted(weights, key=lambda pair: -abs(pair[1]))[:n]

    def steer(self, strength: float = 1.0, *, t: Window = None, agents: Agents = "own") -> Steer:
        """The edit that adds `strength` standard deviations of the direction to the activation.

        Args:
            strength: in standard deviations, may be negative.
            t: time window of the edit.
            agents: agents to edit; "own" for the agent that the direction was found in, None for all.
        """
        return Steer(self.site, self, strength, agents=self._agents(agents), t=t)

    def erase(self, *, keep_mean: bool = True, t: Window = None, agents: Agents = "own") -> Erase:
        """The edit that removes the direction: the projection onto it is set to the mean, or to zero."""
        return Erase(self.site, (self,), keep_mean, agents=self._agents(agents), t=t)

    def clamp(self, z: float, *, t: Window = None, agents: Agents = "own") -> Clamp:
        """The edit that sets the projection to `z` standard deviations from the mean."""
        return Clamp(self.site, self.mean + z * self.scale, self, agents=self._agents(agents), t=t)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` turns into an equal direction."""
        return {**asdict(self), "vector": list(self.vector)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Direction:
        """The direction that `to_json` wrote.

        Raises:
            ConfigError: an unknown or a missing field.
            ShapeError: the vector does not have length 1.
        """
        valid = {field.name for field in fields(Direction)}
        missing = sorted({field.name for field in fields(Direction) if field.default is MISSING} - set(data))
        for name in data:
            if name not in valid:
                raise ConfigError(unknown("field of a direction", name, valid))
        if missing:
            raise ConfigError(f"a direction has {sorted(valid)}; missing: {missing}")
        return Direction(**data)

    def _agents(self, agents: Agents) -> tuple[int | str, ...] | None:
        if agents == "own":
            return (self.agent,)
        return (agents,) if isinstance(agents, str) else agents


@EDITS.register("steer")
@dataclass(frozen=True)
class Steer(Edit):
    """Adds a direction to the activation: `h' = h + strength * scale * vector`.

    It edits every agent that `agents` selects, not only the agent of the direction.

    Attributes:
        direction: in the space of the chosen units.
        strength: in standard deviations of the direction.
    Source: activation addition, Turner et al. 2023 (arXiv:2308.10248); inference-time intervention, Li et al. 2023
        (arXiv:2306.03341).
    """

    strength_field: ClassVar[str | None] = "strength"

    direction: Direction | None = None
    strength: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction is None:
            raise ConfigError("Steer needs a Direction, as decoding.direction() returns; got None")
        object.__setattr__(self, "direction", as_direction(self.direction))

    def bind(self, target: EditTarget) -> Change:
        assert self.direction is not None  # checked in __post_init__
        step = vectors([self.direction], target)[0] * (self.direction.scale * self.strength)
        return lambda values, output: values + step.to(values)


@EDITS.register("erase")
@dataclass(frozen=True)
class Erase(Edit):
    """Projects directions out of the activation, so that no linear function along them can be read any more.

    The projection is orthogonal, as in INLP. LEACE (Belrose et al. 2023, arXiv:2306.03819) instead uses an oblique
    projection, which takes the activations' covariance into account.

    Attributes:
        directions: one or several; they need not be orthogonal.
        keep_mean: set the projections to the directions' means instead of zero, so later layers receive a usual value.
    Source: INLP, Ravfogel et al. 2020, section 4 (arXiv:2004.07667).
    """

    directions: tuple[Direction, ...] = ()
    keep_mean: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.directions
        is_several = isinstance(given, Iterable) and not isinstance(given, Direction | Mapping)
        directions = tuple(given) if is_several else (given,)
        if not directions:
            raise ConfigError("Erase needs one or more Directions, as decoding.direction() returns; got none")
        object.__setattr__(self, "directions", tuple(as_direction(direction) for direction in directions))

    def bind(self, target: EditTarget) -> Change:
        stacked = vectors(self.directions, target).double()
        left, sizes, right = torch.linalg.svd(stacked, full_matrices=False)
        rank = sizes > 1e-6 * sizes[0]  # directions that coincide count once
        basis = right[rank]
        means = torch.tensor([direction.mean if self.keep_mean else 0.0 for direction in self.directions]).double()
        offset = (left[:, rank].T @ means / sizes[rank]) @ basis  # the vector in their span with these projections
        basis, offset = basis.float(), offset.float()

        def project(values: Tensor, output: Tensor) -> Tensor:
            rows = basis.to(values)
            return values - (values @ rows.T) @ rows + offset.to(values)

        return project


@EDITS.register("clamp")
@dataclass(frozen=True)
class Clamp(Edit):
    """Sets each chosen unit to a value; with a direction, sets the projection onto it and keeps the rest.

    Attributes:
        value: in the activation's own units.
        direction: of length 1, in the space of the chosen units.
    """

    strength_field: ClassVar[str | None] = "value"

    value: float = 0.0
    direction: Direction | None = None

    def __post_init__(self) -> None:
        if self.direction is not None:
            object.__setattr__(self, "direction", as_direction(self.direction))
        super().__post_init__()

    def bind(self, target: EditTarget) -> Change:
        if self.direction is None:
            return lambda values, output: torch.full_like(values, self.value)
        vector = vectors([self.direction], target)[0]

        def set_projection(values: Tensor, output: Tensor) -> Tensor:
            along = vector.to(values)
            return values + (self.value - values @ along).unsqueeze(-1) * along

        return set_projection


@EDITS.register("raise")
@dataclass(frozen=True)
class Raise(Edit):
    """Raises the projection onto a direction to a value, and leaves activations that are above it as they are.

    Attributes:
        value: in the activation's own units.
        direction: of length 1, in the space of the chosen units.
        along: another direction of length 1, along which activations are moved by the same distance; as a control.
    """

    strength_field: ClassVar[str | None] = "value"

    value: float = 0.0
    direction: Direction | None = None
    along: Direction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction is None:
            raise ConfigError("Raise needs a Direction, as decoding.direction() returns; got None")
        object.__setattr__(self, "direction", as_direction(self.direction))
        if self.along is not None:
            object.__setattr__(self, "along", as_direction(self.along))

    def bind(self, target: EditTarget) -> Change:
        assert self.direction is not None  # checked in __post_init__
        condition, path = vectors([self.direction, self.along or self.direction], target)

        def raised(values: Tensor, output: Tensor) -> Tensor:
            missing = (self.value - values @ condition.to(values)).clamp(min=0)
            return values + missing.unsqueeze(-1) * path.to(values)

        return raised


def as_direction(direction: Direction | Mapping[str, object]) -> Direction:
    """Raises ConfigError: neither a direction nor what its `to_json` returned."""
    if isinstance(direction, Direction):
        return direction
    if not isinstance(direction, Mapping):
        raise ConfigError(f"expected a Direction, as decoding.direction() returns; got {shown(direction)}")
    return Direction.from_json(direction)


def vectors(directions: Sequence[Direction], target: EditTarget) -> Tensor:
    """The directions' vectors, `[direction, unit]`.

    Raises:
        ShapeError: a direction does not have as many units as the target.
    """
    for direction in directions:
        if len(direction.vector) != len(target.units):
            raise ShapeError(
                f"the direction of {direction.concept!r} has {len(direction.vector)} units; "
                f"the edit covers {len(target.units)} units of {target.site.name!r}"
            )
    return torch.tensor([direction.vector for direction in directions])

"""Direction: where in a site's space a concept lies. Decoders and dictionaries find such; edits go along or against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from math import sqrt
from typing import TYPE_CHECKING, Any

from marlnb.errors import ConfigError, ShapeError, unknown

if TYPE_CHECKING:
    from marlnb.models.hooks.edit import Window
    from marlnb.models.hooks.edits import Clamp
    from marlnb.models.hooks.edits_directions import Erase, Steer

    Agents = tuple[int | str, ...] | str | None


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

    def steer(self, dose: float = 1.0, *, t: Window = None, agents: Agents = "own") -> Steer:
        """The edit that adds `dose` standard deviations of it to the activation.

        Args:
            t: the edit's window of time; agents: whose activation, "own" for the agent it was found in, None for all.
        """
        from marlnb.models.hooks.edits_directions import Steer

        return Steer(self.site, self, dose, agents=self._agents(agents), t=t)

    def erase(self, *, keep_mean: bool = True, t: Window = None, agents: Agents = "own") -> Erase:
        """The edit that projects it out: its projection is held at the mean, or at zero."""
        from marlnb.models.hooks.edits_directions import Erase

        return Erase(self.site, (self,), keep_mean, agents=self._agents(agents), t=t)

    def clamp(self, z: float, *, t: Window = None, agents: Agents = "own") -> Clamp:
        """The edit that holds its projection `z` standard deviations from the mean."""
        from marlnb.models.hooks.edits import Clamp

        return Clamp(self.site, self.mean + z * self.scale, self, agents=self._agents(agents), t=t)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON that `from_json` turns into an equal direction."""
        return {**asdict(self), "vector": list(self.vector)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Direction:
        """The direction that `to_json` told.

        Raises:
            ConfigError: a field that a direction does not have, or one that is missing; ShapeError: no unit vector.
        """
        known = {each.name for each in fields(Direction)}
        missing = sorted({each.name for each in fields(Direction) if each.default is MISSING} - set(data))
        for name in data:
            if name not in known:
                raise ConfigError(unknown("field of a direction", name, known))
        if missing:
            raise ConfigError(f"a direction has {sorted(known)}; missing: {missing}")
        return Direction(**data)

    def _agents(self, agents: Agents) -> tuple[int | str, ...] | None:
        if agents == "own":
            return (self.agent,)
        return (agents,) if isinstance(agents, str) else agents

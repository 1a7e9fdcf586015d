"""Edits of units by numbers (ablate, scale, clamp, noise), and `edited`, in whose block edits are in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError, SiteError, unknown
from marlnb.models.hooks.activation_sources import open_donor, source_path
from marlnb.models.hooks.directions import Direction
from marlnb.models.hooks.edit import EDITS, OBSERVATION, Change, Edit, Place, place_of
from marlnb.models.hooks.edits_hook import EditHook
from marlnb.models.hooks.observation_gate import ObservationGate
from marlnb.models.hooks.sites import Site, match_sites
from marlnb.models.policies.policy import Policy

__all__ = ["EDITS", "Ablate", "Clamp", "Edit", "Noise", "Scale", "edited"]

ABLATIONS = ("zero", "mean", "resample")


@EDITS.register("ablate")
@dataclass(frozen=True)
class Ablate(Edit):
    """Takes away what the chosen units say.

    Attributes:
        value: "zero"; a number, or one for each unit, in the activation's own units; "mean", each agent's mean over the
            rows of the recording `source` at which it was alive; "resample", at every step another random row of it.
        source: a recording, or its path; digest: which one it must be; seed: of the rows that are drawn.
    """

    value: float | str | tuple[float, ...] = "zero"
    source: str | None = field(default=None, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "source", source_path(self.source))
        if isinstance(self.value, str) and self.value not in ABLATIONS:
            raise ConfigError(f"ablate to {self.value!r}; valid: 'zero', 'mean', 'resample', a number, or one a unit")
        if self.value in ("mean", "resample") and self.source is None:
            raise ConfigError(f"ablating to {self.value!r} takes source=, a recording of these agents")
        if not isinstance(self.value, str | int | float):
            object.__setattr__(self, "value", tuple(float(x) for x in self.value))

    def begin(self, place: Place) -> Change:
        if self.value == "resample":
            return self._resample(place)
        if self.value == "mean":
            held = torch.stack([rows.double().mean(0).float() for rows in self._rows(place)])
        else:
            held = torch.tensor(0.0 if self.value == "zero" else self.value, dtype=torch.float32)
            if held.ndim and len(held) != len(place.units):
                raise ShapeError(
                    f"{len(held)} values for {len(place.units)} units of {place.site.name!r}; give one each"
                )
        return lambda values, whole: held.to(values).expand_as(values)

    def _resample(self, place: Place) -> Change:
        donors = self._rows(place)
        generator = torch.Generator().manual_seed(self.seed)

        def draw(values: Tensor, whole: Tensor) -> Tensor:
            parts = []
            for rows in donors:
                index = torch.randint(len(rows), values.shape[:-2], generator=generator)
                parts.append(rows[index].to(values))
            return torch.stack(parts, dim=-2)

        return draw

    def _rows(self, place: Place) -> list[Tensor]:
        """For each touched agent its recorded rows, `[row, unit]`, of those at which it was alive."""
        assert self.source is not None
        donor, units = open_donor(self.source, self.digest), list(place.units)
        found = [
            torch.from_numpy(donor.values(place.site.name, agent)[donor.alive(agent)][:, units])
            for agent in place.agents
        ]
        if not all(len(rows) for rows in found):
            raise ConfigError(f"{self.source} has no row at which all of {list(place.agents)} were alive")
        return found


@EDITS.register("scale")
@dataclass(frozen=True)
class Scale(Edit):
    """Multiplies the chosen units; a factor of 1 changes nothing, bit for bit."""

    dose_field: ClassVar[str | None] = "factor"

    factor: float = 1.0

    def begin(self, place: Place) -> Change:
        return lambda values, whole: values * self.factor


@EDITS.register("clamp")
@dataclass(frozen=True)
class Clamp(Edit):
    """Holds each chosen unit at a value; with a direction, the units' projection onto it, the rest left as it is.

    Attributes:
        value: in the activation's own units.
        direction: of length 1, in the space of the chosen units.
    """

    dose_field: ClassVar[str | None] = "value"

    value: float = 0.0
    direction: Direction | None = None

    def __post_init__(self) -> None:
        if isinstance(self.direction, Mapping):
            object.__setattr__(self, "direction", Direction(**self.direction))
        super().__post_init__()

    def begin(self, place: Place) -> Change:
        if self.direction is None:
            return lambda values, whole: torch.full_like(values, self.value)
        vector = torch.tensor(self.direction.vector)
        if len(vector) != len(place.units):
            raise ShapeError(f"a direction of {len(vector)} units at {place.site.name!r}, of {len(place.units)} units")

        def hold(values: Tensor, whole: Tensor) -> Tensor:
            along = vector.to(values)
            return values + (self.value - values @ along).unsqueeze(-1) * along

        return hold


@EDITS.register("noise")
@dataclass(frozen=True)
class Noise(Edit):
    """Adds Gaussian noise of standard deviation `scale`, in the activation's own units, drawn anew at every step."""

    dose_field: ClassVar[str | None] = "scale"

    scale: float = 1.0
    seed: int = field(default=0, kw_only=True)

    def begin(self, place: Place) -> Change:
        generator = torch.Generator().manual_seed(self.seed)
        return lambda values, whole: values + self.scale * torch.randn(values.shape, generator=generator).to(values)


@contextmanager
def edited(policies: Policy | Mapping[str, Policy], edits: Iterable[Edit]) -> Iterator[None]:
    """Inside the block the policies act with the edits made, in the order given; afterwards no hook is left.

    Raises:
        SiteError: an edit whose site is in none of the policies.
        ShapeError: a unit or agent that the site does not have.
        ConfigError: a recording that an edit needs is another one.
    """
    members = _members(policies)
    edits = list(edits)
    gates = {id(p): ObservationGate(p) for p in members} if any(_of_observation(edit) for edit in edits) else {}
    hooks = [EditHook(edit, place) for edit in edits for place in _places(members, gates, edit)]
    with ExitStack() as stack:
        for gate in gates.values():
            stack.enter_context(gate)
        for hook in reversed(hooks):  # prepended, so that a capture sees the edited values
            stack.callback(hook.place.site.module.register_forward_hook(hook, prepend=True).remove)
        yield


def places_of(policies: Policy | Mapping[str, Policy], edit: Edit) -> list[Place]:
    """Where an edit would be made.

    Raises:
        SiteError, ShapeError: as `edited`.
    """
    members = _members(policies)
    gates = {id(p): ObservationGate(p) for p in members} if _of_observation(edit) else {}
    return _places(members, gates, edit)


def _members(policies: Policy | Mapping[str, Policy]) -> list[Policy]:
    return [policies] if isinstance(policies, Policy) else list(policies.values())


def _of_observation(edit: Edit) -> bool:
    return edit.site.endswith(f"/{OBSERVATION}")


def _places(policies: list[Policy], gates: Mapping[int, ObservationGate], edit: Edit) -> list[Place]:
    """Where one edit is made; everything is checked here, before any hook is in force."""
    sites: list[tuple[Policy, Site]] = [
        (policy, site)
        for policy in policies
        for site in ([gates[id(policy)].site] if _of_observation(edit) else policy.sites())
    ]
    names = {site.name for site in match_sites([site for _, site in sites], edit.site)}
    touched = [(policy, site) for policy, site in sites if site.name in names]
    known = {agent for policy, _ in touched for agent in policy.group.agents}
    for agent in edit.agents or ():
        if isinstance(agent, str) and agent not in known:
            raise ShapeError(unknown(f"agent at {edit.site!r}", agent, known))
    places = [place for policy, site in touched if (place := place_of(edit, policy, site)) is not None]
    if not places:
        raise SiteError(f"edit of {edit.site!r} touches no agent; asked for {edit.agents}, it has {sorted(known)}")
    return places

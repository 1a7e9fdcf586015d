"""Edit: a change of what a site outputs, for chosen agents, units and moments. Its kinds are in `edits*.py` beside.

An edit is frozen data that survives a round trip through JSON, so that an evaluation can say exactly what was done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from torch import Tensor

from marlnb.errors import ConfigError, ShapeError, unknown
from marlnb.models.hooks.activation_sources import open_donor
from marlnb.models.hooks.sites import Site
from marlnb.models.policies.policy import Policy
from marlnb.registry import Registry

EDITS: Registry = Registry("edit", "marlnb.models.hooks")
OBSERVATION = "observation"

Change = Callable[[Tensor, Tensor], Tensor]
"""(values of the chosen agents and units `[..., agent, unit]`, the site's whole output `[..., row, unit]`) -> new
values for the chosen ones, broadcastable to them."""
Window = int | tuple[int | None, int | None] | None


@dataclass(frozen=True)
class Place:
    """Where an edit is made: one site of one policy.

    Attributes:
        agents: names of the touched agents; one where the site is computed once for all.
        rows: where they lie on the agent axis of the module's output.
        units: indices along its unit axis.
    """

    policy: Policy
    site: Site
    agents: tuple[str, ...]
    rows: tuple[int, ...]
    units: tuple[int, ...]

    @property
    def all_agents(self) -> tuple[str, ...]:
        """Every agent whose activation it is."""
        return self.policy.group.agents if self.site.shared_forward else self.agents


@dataclass(frozen=True)
class Edit(ABC):
    """A change of the values at a site.

    Attributes:
        site: glob over site names, as `listener/actor/hidden_1`; `<group>/observation` is what the group's actors see.
        units: indices along the unit axis; None for all. Of an observation also its features' names, or globs.
        agents: names, or indices within their group; None for all. Where a glob spans groups, names pick the groups.
        t: steps since the episode began at which the edit is in force: one step, or (first, the one after the last),
            where None is open; None: always.
    """

    name: ClassVar[str]
    strength_field: ClassVar[str | None] = None

    site: str
    units: tuple[int | str, ...] | None = field(default=None, kw_only=True)
    agents: tuple[int | str, ...] | None = field(default=None, kw_only=True)
    t: Window = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for chosen in ("units", "agents"):
            value = getattr(self, chosen)
            if isinstance(value, int | str):
                value = (value,)
            object.__setattr__(self, chosen, None if value is None else tuple(value))
        if self.t is not None and not isinstance(self.t, int):
            object.__setattr__(self, "t", tuple(self.t))
        start, stop = self.window
        if start < 0 or (stop is not None and stop <= start):
            raise ConfigError(f"t={self.t!r} is no window of steps; valid: a step, (first, stop) with first < stop")

    @property
    def window(self) -> tuple[int, int | None]:
        """The first step at which it is in force, and the one after the last (None: open)."""
        if self.t is None:
            return 0, None
        if isinstance(self.t, int):
            return self.t, self.t + 1
        if len(self.t) != 2:
            raise ConfigError(f"t={self.t!r} is no window of steps; valid: a step, or (first, stop)")
        return self.t[0] or 0, self.t[1]

    @abstractmethod
    def begin(self, place: Place) -> Change:
        """The change as it is made at a place; called once, when the edit comes into force there."""

    def at_strength(self, strength: float) -> Edit:
        """The same edit, stronger or weaker.

        Raises:
            ConfigError: it has no strength.
        """
        if self.strength_field is None:
            raise ConfigError(f"an edit of kind {self.name!r} has no strength; steer, scale, noise and clamp have")
        edited_copy: Edit = replace(self, **{self.strength_field: strength})  # type: ignore[arg-type]
        return edited_copy

    def pinned(self) -> Edit:
        """The same edit, which refuses any other recording than the one that lies at its `source` now."""
        source = getattr(self, "source", None)
        if source is None:
            return self
        pinned: Edit = replace(self, digest=open_donor(source).digest)  # type: ignore[call-arg]
        return pinned

    def to_json(self) -> dict[str, Any]:
        """Plain data: the edit's kind and its fields."""
        return {"edit": self.name, **asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Edit:
        """Raises ConfigError for an unknown kind or field."""
        kind = EDITS.get(str(data.get("edit")))
        options = {key: value for key, value in data.items() if key != "edit"}
        for key in options:
            if key not in (valid := [field.name for field in fields(kind)]):
                raise ConfigError(unknown(f"field of edit {kind.name!r}", key, valid))
        edit: Edit = kind(**options)
        return edit


def place_of(edit: Edit, policy: Policy, site: Site) -> Place | None:
    """Where an edit is made at a site; None where it touches none of the site's agents.

    Raises:
        ShapeError: a unit or an agent that the site does not have.
    """
    names = policy.group.agents
    chosen = _agents(edit, names, site)
    if not chosen:
        return None
    if site.shared_forward:
        if edit.agents is not None and len(chosen) < site.n_agents:
            raise ShapeError(
                f"{site.name!r} is computed once for all of its {site.n_agents} agents, so an edit cannot choose "
                f"agents {edit.agents}; valid: agents=None"
            )
        return Place(policy, site, names[:1], (0,), _units(edit, policy, site))
    rows = [row for row in map(site.row_of, chosen) if row is not None]
    agents = tuple(names[index] for index in chosen)
    return Place(policy, site, agents, tuple(rows), _units(edit, policy, site))


def _agents(edit: Edit, names: tuple[str, ...], site: Site) -> list[int]:
    """Indices within the group of the site's agents that the edit touches, ascending."""
    here = range(len(names)) if site.agents is None else site.agents
    if edit.agents is None:
        return list(here)
    for agent in edit.agents:
        if isinstance(agent, int) and not 0 <= agent < len(names):
            raise ShapeError(f"no agent {agent} at {site.name!r}; valid: 0 to {len(names) - 1}, {', '.join(names)}")
    return [index for index in here if index in edit.agents or names[index] in edit.agents]


def _units(edit: Edit, policy: Policy, site: Site) -> tuple[int, ...]:
    if edit.units is None:
        return tuple(range(site.n_units))
    found: list[int] = []
    for unit in edit.units:
        if isinstance(unit, str):
            found += _named(unit, policy, site)
        elif 0 <= unit < site.n_units:
            found.append(unit)
        else:
            raise ShapeError(f"no unit {unit} at {site.name!r}; valid: 0 to {site.n_units - 1}")
    return tuple(dict.fromkeys(found))


def _named(pattern: str, policy: Policy, site: Site) -> list[int]:
    names = policy.group.observation.names if site.name.endswith(f"/{OBSERVATION}") else ()
    found = [index for index, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not found:
        what = "feature" if names else "named unit (only observations' features may have names)"
        raise ShapeError(f"{site.name!r}: {unknown(what, pattern, names)}")
    return found

"""Edit: a change to the output of a site, for chosen agents, units and time steps. Other files here have its kinds.

An edit is frozen data that survives a round trip through JSON, so an evaluation can state exactly what was changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError, shown, unknown
from marlnb.models.hooks.activation_sources import open_activation_source
from marlnb.models.hooks.sites import OBSERVATION, Site
from marlnb.plugins.registry import Registry
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.models.policies.policy import Policy

EDITS: Registry = Registry("edit", "marlnb.models")

Change = Callable[[Tensor, Tensor], Tensor]
"""(values of the chosen agents and units `[..., agent, unit]`, the site's whole output `[..., row, unit]`) -> new
values for the chosen ones, broadcastable to them."""
Window = int | tuple[int | None, int | None] | None


@dataclass(frozen=True)
class EditTarget:
    """Where an edit applies: one site of one policy.

    Attributes:
        policy: the policy that has the site.
        site: the site.
        agents: names of the edited agents; the first one only where the site has one shared forward pass.
        rows: their positions on the agent axis of the module's output.
        units: indices along its unit axis.
        n_earlier: edits of the same kind that apply at the site before this one.
    """

    policy: Policy
    site: Site
    agents: tuple[str, ...]
    rows: tuple[int, ...]
    units: tuple[int, ...]
    n_earlier: int = 0

    @property
    def all_agents(self) -> tuple[str, ...]:
        """The agents whose behaviour the edit may change: the whole group where the forward pass is shared."""
        return self.policy.group.agents if self.site.shared_forward else self.agents


@dataclass(frozen=True)
class Edit(ABC):
    """A change to the output of a site.

    Attributes:
        site: site name or glob; `<group>/observation` edits what the group's actors receive.
        units: indices along the unit axis, or None for all. An observation also accepts feature names and globs.
        agents: names, or indices within their group; None for all. Where a glob spans groups, names pick the groups.
        t: time steps at which the edit applies: one step, or (first, stop) with None for an open end; None: always.
    """

    name: ClassVar[str]
    strength_field: ClassVar[str | None] = None

    site: str
    units: tuple[int | str, ...] | None = field(default=None, kw_only=True)
    agents: tuple[int | str, ...] | None = field(default=None, kw_only=True)
    t: Window = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, plain(getattr(self, item.name)))
        for name in ("units", "agents"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else _indices_or_names(name, value))
        if self.strength_field is not None:
            checked_number(getattr(self, self.strength_field), float, self._argument(self.strength_field))
        if self.t is not None and not isinstance(self.t, int):
            object.__setattr__(self, "t", tuple(plain(bound) for bound in self.t))
        start, stop = self.window
        if start < 0 or (stop is not None and stop <= start):
            raise ConfigError(f"invalid time window t={self.t!r}; valid: a step, or (first, stop) with first < stop")

    @property
    def window(self) -> tuple[int, int | None]:
        """The first step at which the edit applies, and the step after the last one (None: open)."""
        if self.t is None:
            return 0, None
        if isinstance(self.t, int):
            return self.t, self.t + 1
        if len(self.t) != 2:
            raise ConfigError(f"invalid time window t={self.t!r}; valid: a step, or (first, stop)")
        return self.t[0] or 0, self.t[1]

    @property
    def is_random(self) -> bool:
        """Whether it draws numbers while it is in force: an episode then depends on what was played before it."""
        return False

    @abstractmethod
    def bind(self, target: EditTarget) -> Change:
        """The change as a function of activations at `target`. Called once, when the edit starts there."""

    def linear(self, target: EditTarget) -> tuple[Tensor, Tensor] | None:
        """(factor, offset), each broadcastable to `[agent, unit]`, of a change h' = factor h + offset; factor 0 stands
        for h' = offset. None: the change is another one."""
        return None

    def _argument(self, name: str) -> str:
        """A field in messages: `factor= of Scale`."""
        return f"{name}= of {type(self).__name__}"

    def at_strength(self, strength: float) -> Edit:
        """The same edit with another strength.

        Raises:
            ConfigError: this kind of edit has no strength.
        """
        if self.strength_field is None:
            raise ConfigError(f"edit {self.name!r} has no strength; edits with one: steer, scale, noise, clamp")
        edit: Edit = replace(self, **{self.strength_field: strength})  # type: ignore[arg-type]
        return edit

    def pinned(self) -> Edit:
        """The same edit, which accepts only the recording that is at `source` now."""
        source = getattr(self, "source", None)
        if source is None:
            return self
        edit: Edit = replace(self, digest=open_activation_source(source).digest)  # type: ignore[call-arg]
        return edit

    def to_json(self) -> dict[str, Any]:
        """Plain data: the edit's kind and its fields."""
        return {"edit": self.name, **asdict(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Edit:
        """The edit that `to_json` wrote.

        Raises:
            ConfigError: unknown kind or field, or a value of another type.
        """
        kind = EDITS.get(str(data.get("edit")))
        options = {key: value for key, value in data.items() if key != "edit"}
        valid = [field.name for field in fields(kind)]
        for key in options:
            if key not in valid:
                raise ConfigError(unknown(f"field of edit {kind.name!r}", key, valid))
        try:
            edit: Edit = kind(**options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"edit {kind.name!r}: {error}") from error
        return edit


def edit_list(edits: Edit | Iterable[Edit]) -> list[Edit]:
    """One or several edits, as a list.

    Raises:
        ConfigError: there is something else.
    """
    edits = [edits] if isinstance(edits, Edit) or not isinstance(edits, Iterable) else list(edits)
    for edit in edits:
        if not isinstance(edit, Edit):
            raise ConfigError(f"expected an edit or a list of edits, such as mnb.Ablate(site); got {shown(edit)}")
    return edits


def _indices_or_names(name: str, value: Any) -> tuple[int | str, ...]:
    """One or several of them, as a tuple.

    Raises:
        ConfigError: there is something else, such as a mask: its booleans would be taken for the indices 0 and 1.
    """
    value = plain(value)
    several = isinstance(value, Iterable) and not isinstance(value, str)
    chosen = tuple(plain(item) for item in value) if several else (value,)
    for item in chosen:
        if isinstance(item, bool) or not isinstance(item, int | str):
            raise ConfigError(
                f"{name}= of an edit must be indices or names; got {item!r}. np.flatnonzero(mask) gives the indices of "
                "a mask"
            )
    return chosen


def plain(value: Any) -> Any:
    """The Python number or string of a scalar of numpy or torch; anything else is returned unchanged."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray | Tensor) and value.ndim == 0)
    return value.item() if is_scalar else value


def edit_target(edit: Edit, policy: Policy, site: Site) -> EditTarget | None:
    """Where an edit applies at a site; None if it touches none of the site's agents.

    Raises:
        ShapeError: the site has no such unit or agent.
    """
    names = policy.group.agents
    site_agents = range(len(names)) if site.agents is None else site.agents
    for agent in edit.agents or ():
        if isinstance(agent, int) and not 0 <= agent < len(names):
            raise ShapeError(f"no agent {agent} at {site.name!r}; valid: 0 to {len(names) - 1}, {', '.join(names)}")
    indices = [k for k in site_agents if edit.agents is None or k in edit.agents or names[k] in edit.agents]
    if not indices:
        return None
    units = _unit_indices(edit, policy, site)
    if not site.shared_forward:
        rows = [row for row in map(site.row_of, indices) if row is not None]
        return EditTarget(policy, site, tuple(names[k] for k in indices), tuple(rows), units)
    if edit.agents is not None and len(indices) < site.n_agents:
        raise ShapeError(
            f"{site.name!r} has one forward pass for all of its {site.n_agents} agents, so an edit cannot select "
            f"agents {edit.agents}; valid: agents=None"
        )
    return EditTarget(policy, site, names[:1], (0,), units)


def _unit_indices(edit: Edit, policy: Policy, site: Site) -> tuple[int, ...]:
    if edit.units is None:
        return tuple(range(site.n_units))
    indices: list[int] = []
    for unit in edit.units:
        if isinstance(unit, str):
            indices += _feature_indices(unit, policy, site)
        elif 0 <= unit < site.n_units:
            indices.append(unit)
        else:
            raise ShapeError(f"no unit {unit} at {site.name!r}; valid: 0 to {site.n_units - 1}")
    return tuple(dict.fromkeys(indices))


def _feature_indices(pattern: str, policy: Policy, site: Site) -> list[int]:
    names = policy.group.observation.names if site.name.endswith(f"/{OBSERVATION}") else ()
    indices = [index for index, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not indices:
        what = "feature" if names else "named unit (only observation features can have names)"
        raise ShapeError(f"{site.name!r}: {unknown(what, pattern, names)}")
    return indices

"""Edits: changes of what a site outputs, for chosen agents and units, while a block runs.

An edit is frozen data that survives a round trip through JSON, so that an evaluation can say exactly what was done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, ShapeError, SiteError, unknown
from marlnb.models.policy import Policy
from marlnb.models.sites import Site, match_sites
from marlnb.registry import Registry

EDITS: Registry = Registry("edit", "marlnb.models")


@dataclass(frozen=True)
class Edit(ABC):
    """A change of the values at a site.

    Attributes:
        site: glob over site names, as `listener/actor/hidden_1`.
        units: indices along the unit axis; None for all.
        agents: names, or indices within their group; None for all. Where a glob spans groups, names pick the groups.
    """

    name: ClassVar[str]

    site: str
    units: tuple[int, ...] | None = None
    agents: tuple[int | str, ...] | None = None

    def __post_init__(self) -> None:
        for chosen in ("units", "agents"):
            value = getattr(self, chosen)
            if isinstance(value, int | str):
                value = (value,)
            object.__setattr__(self, chosen, None if value is None else tuple(value))

    @abstractmethod
    def change(self, values: Tensor) -> Tensor:
        """New values for those of the chosen agents and units, `[..., agent, unit]`."""

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


@EDITS.register("ablate")
@dataclass(frozen=True)
class Ablate(Edit):
    """Holds the chosen units at a constant: zero, or a number in the activation's own units."""

    value: float | Literal["zero"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.value, str) and self.value != "zero":
            raise ConfigError(f"ablate to {self.value!r}; valid: 'zero' or a number")

    def change(self, values: Tensor) -> Tensor:
        return torch.full_like(values, 0.0 if self.value == "zero" else float(self.value))


@EDITS.register("scale")
@dataclass(frozen=True)
class Scale(Edit):
    """Multiplies the chosen units; a factor of 1 changes nothing, bit for bit."""

    factor: float = 1.0

    def change(self, values: Tensor) -> Tensor:
        return values * self.factor


@contextmanager
def edited(policies: Policy | Mapping[str, Policy], edits: Iterable[Edit]) -> Iterator[None]:
    """Inside the block the policies act with the edits made, in the order given; afterwards no hook is left.

    Raises:
        SiteError: an edit whose site is in none of the policies.
        ShapeError: a unit or agent that the site does not have.
    """
    members = [policies] if isinstance(policies, Policy) else list(policies.values())
    changes = [change for edit in edits for change in _changes(members, edit)]
    with ExitStack() as hooks:
        for module, hook in reversed(changes):  # prepended, so that a capture sees the edited values
            hooks.callback(module.register_forward_hook(hook, prepend=True).remove)
        yield


Hook = Callable[[nn.Module, object, Tensor], Tensor]


def _changes(policies: list[Policy], edit: Edit) -> list[tuple[nn.Module, Hook]]:
    """The modules that `edit` touches, each with its hook; everything is checked here, before any hook exists."""
    names = {site.name for site in match_sites([site for policy in policies for site in policy.sites()], edit.site)}
    touched = [(policy, site) for policy in policies for site in policy.sites() if site.name in names]
    known = {agent for policy, _ in touched for agent in policy.group.agents}
    for agent in edit.agents or ():
        if isinstance(agent, str) and agent not in known:
            raise ShapeError(unknown(f"agent at {edit.site!r}", agent, known))
    changes = []
    for policy, site in touched:
        agents = _agent_indices(edit, policy.group.agents, site)
        if agents is None or agents:
            changes.append((site.module, _changer(edit, agents, _unit_indices(edit, site))))
    if not changes:
        raise SiteError(f"edit of {edit.site!r} touches no agent; asked for {edit.agents}, it has {sorted(known)}")
    return changes


def _agent_indices(edit: Edit, names: tuple[str, ...], site: Site) -> list[int] | None:
    """Rows of the module's output that the edit touches; None for all."""
    if edit.agents is None:
        return None if site.rows is None else list(site.rows)
    for agent in edit.agents:
        if isinstance(agent, int) and not 0 <= agent < len(names):
            raise ShapeError(f"no agent {agent} at {site.name!r}; valid: 0 to {len(names) - 1}, {', '.join(names)}")
    index = {name: position for position, name in enumerate(names)} | {
        position: position for position in range(len(names))
    }
    found = {site.row_of(index[agent]) for agent in edit.agents if agent in index}
    chosen = sorted(row for row in found if row is not None)
    if len(chosen) == site.n_agents and site.agents is None:
        return None
    if chosen and site.once_for_all:
        raise ShapeError(
            f"{site.name!r} is computed once for all of its {site.n_agents} agents, so an edit cannot choose agents "
            f"{edit.agents}; valid: agents=None"
        )
    return chosen


def _unit_indices(edit: Edit, site: Site) -> list[int]:
    units = range(site.n_units) if edit.units is None else edit.units
    for unit in units:
        if not 0 <= unit < site.n_units:
            raise ShapeError(f"no unit {unit} at {site.name!r}; valid: 0 to {site.n_units - 1}")
    return list(units)


def _changer(edit: Edit, agents: list[int] | None, units: list[int]) -> Hook:
    unit_index = torch.tensor(units, dtype=torch.long)

    def change(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        rows = torch.tensor(range(output.shape[-2]) if agents is None else agents, dtype=torch.long)[:, None]
        changed = output.clone()
        changed[..., rows, unit_index] = edit.change(output[..., rows, unit_index])
        return changed

    return change

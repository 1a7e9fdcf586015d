"""Sites: the named places in a policy whose activations can be recorded or edited.

A site is an ordinary submodule whose output is `[..., n_agents, unit]`, whether the agents share weights or not, so a
plain forward hook receives real tensors with an agent axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from torch import Tensor, nn

from marlnb.errors import SiteError, unknown

SiteKind = Literal["hidden", "recurrent", "head"]
SiteModule = tuple[str, nn.Module, int, SiteKind]
"""Name, submodule, units and kind of a site, as `Network.site_modules` lists them."""
OBSERVATION = "observation"
"""Last part of the name of an observation site, `<group>/observation`."""


@dataclass(frozen=True)
class Site:
    """A named place in a policy.

    Attributes:
        name: `<group>/<actor|critic>/<layer>`, as `listener/actor/hidden_1`; where agents have networks of different
            kinds `<group>/<actor|critic>/<agent>/<layer>`.
        module: the submodule whose output is the activation, `[..., n_agents, unit]`.
        n_agents: length of the activation's agent axis.
        n_units: length of its unit axis.
        kind: hidden (after the nonlinearity), recurrent (the state after the step), head (the network's output).
        shared_forward: one forward pass serves all agents, on an agent axis of 1 (a shared centralised critic).
        agents: indices, within the group, of the agents that the activation belongs to; None for all.
        rows: positions of those agents on the agent axis of the module's output, if it has other agents too.
    """

    name: str
    module: nn.Module
    n_agents: int
    n_units: int
    kind: SiteKind
    shared_forward: bool = False
    agents: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None

    @property
    def group(self) -> str:
        """The group of agents."""
        return group_of(self.name)

    @property
    def part(self) -> str:
        """actor, critic or mixer."""
        return part_of(self.name)

    def select_agents(self, output: Tensor) -> Tensor:
        """The activation `[..., n_agents, unit]` of this site's agents, taken from the module's output."""
        if self.rows is not None:
            return output[..., list(self.rows), :]
        if output.shape[-2] != self.n_agents:
            return output.expand(*output.shape[:-2], self.n_agents, output.shape[-1])
        return output

    def row_of(self, agent: int) -> int | None:
        """Position of an agent of the group on the agent axis of the module's output; None if it has none there."""
        if self.agents is None:
            return agent
        if agent not in self.agents:
            return None
        position = self.agents.index(agent)
        return position if self.rows is None else self.rows[position]


def group_of(site: str) -> str:
    """The group in a site's name."""
    return site.partition("/")[0]


def part_of(site: str) -> str:
    """actor, critic or mixer: the part of a policy in a site's name."""
    return site.split("/")[1] if "/" in site else ""


def match_sites(sites: Iterable[Site], patterns: str | Iterable[str]) -> list[Site]:
    """The sites that match any of the globs, in the order of `sites`.

    Raises:
        SiteError: a pattern matches nothing; the message gives the nearest names.
    """
    candidates = list(sites)
    selected: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = {site.name for site in candidates if fnmatchcase(site.name, pattern)}
        if not matches:
            raise SiteError(unknown("site", pattern, [site.name for site in candidates]))
        selected |= matches
    return [site for site in candidates if site.name in selected]

"""Sites: the named places in a network whose activations can be recorded or edited.

A site is an ordinary submodule whose output is `[..., n_agents, unit]`, whether the agents share weights or not, so a
plain forward hook sees real tensors with an agent axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from torch import Tensor, nn

from marlnb.errors import SiteError, unknown

SiteKind = Literal["hidden", "recurrent", "head"]


@dataclass(frozen=True)
class Site:
    """A named place in a policy.

    Attributes:
        name: `<group>/<actor|critic>/<layer>`, as `listener/actor/hidden_1`; where agents have networks of different
            kinds `<group>/<actor|critic>/<agent>/<layer>`.
        module: the submodule whose output is the activation, `[..., n_agents, unit]`.
        n_agents: length of the activation's agent axis.
        kind: hidden (after its nonlinearity), recurrent (the state that leaves the step), head (the network's output).
        shared_forward: the module computes once for all agents, on an agent axis of 1 (a shared centralised critic).
        agents: whose activation it is, as indices within the group; None for all.
        rows: where those agents lie on the agent axis of the module's output, if others lie there as well.
    """

    name: str
    module: nn.Module
    n_agents: int
    n_units: int
    kind: SiteKind
    shared_forward: bool = False
    agents: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None

    def own_rows(self, output: Tensor) -> Tensor:
        """The activation `[..., n_agents, unit]` of this site's agents, out of what the module put out."""
        if self.rows is not None:
            return output[..., list(self.rows), :]
        if output.shape[-2] != self.n_agents:
            return output.expand(*output.shape[:-2], self.n_agents, output.shape[-1])
        return output

    def row_of(self, agent: int) -> int | None:
        """Where an agent of the group lies on the agent axis of the module's output; None where it does not."""
        if self.agents is None:
            return agent
        if agent not in self.agents:
            return None
        place = self.agents.index(agent)
        return place if self.rows is None else self.rows[place]


def match_sites(sites: Iterable[Site], patterns: str | Iterable[str]) -> list[Site]:
    """The sites that match any of the globs, in the network's order.

    Raises:
        SiteError: a pattern that matches nothing, with the nearest names.
    """
    have = list(sites)
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    chosen: set[str] = set()
    for pattern in wanted:
        matched = {site.name for site in have if fnmatchcase(site.name, pattern)}
        if not matched:
            raise SiteError(unknown("site", pattern, [site.name for site in have]))
        chosen |= matched
    return [site for site in have if site.name in chosen]

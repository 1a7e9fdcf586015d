"""Sites: the named places in a network whose activations can be recorded or edited.

A site is an ordinary submodule whose output is `[..., n_agents, unit]`, whether the agents share weights or not, so a
plain forward hook sees real tensors with an agent axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from marlnb.errors import SiteError, unknown

SiteKind = Literal["hidden", "recurrent", "head"]


@dataclass(frozen=True)
class Site:
    """A named place in a policy.

    Attributes:
        name: `<group>/<actor|critic>/<layer>`, as `listener/actor/hidden_1`.
        module: the submodule whose output is the activation, `[..., n_agents, unit]`.
        kind: hidden (after its nonlinearity), recurrent (the state that leaves the step), head (the network's output).
        once_for_all: the module computes once for all agents, on an agent axis of 1 (a shared centralised critic).
    """

    name: str
    module: nn.Module
    n_agents: int
    n_units: int
    kind: SiteKind
    once_for_all: bool = False


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

"""SiteTree: a network's sites as a tree with boxes to tick: group, then actor or critic, then layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import traitlets

from marlnb.models.hooks.sites import Site
from marlnb.widgets.core.controls import Drawn


class SiteTree(Drawn):
    """Sites to choose from; a branch that is ticked ticks all that is below it.

    Attributes:
        sites: name, agents, units and kind of each.
        chosen: names of those that are ticked, in the network's order.
    """

    _esm = Path(__file__).with_name("site_tree.js")
    sites: traitlets.List[dict[str, Any]] = traitlets.List(traitlets.Dict()).tag(sync=True)
    chosen: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def show(self, sites: Iterable[Site], patterns: str | Sequence[str]) -> None:
        """Other sites, of which those that match a pattern are ticked."""
        globs = [patterns] if isinstance(patterns, str) else list(patterns)
        found = [
            {"name": site.name, "agents": site.n_agents, "units": site.n_units, "kind": str(site.kind)}
            for site in sites
        ]
        with self.hold_trait_notifications():
            self.sites = found
            self.chosen = [name for name in self.names if any(fnmatchcase(name, glob) for glob in globs)]

    @property
    def names(self) -> list[str]:
        return [str(entry["name"]) for entry in self.sites]

    @property
    def patterns(self) -> str | list[str]:
        """The shortest globs that mean what is ticked; `[]` where nothing is."""
        chosen = [name for name in self.names if name in self.chosen]
        found = globs_for(chosen, self.names)
        return found[0] if len(found) == 1 else found


def globs_for(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    """Globs that match the chosen names and no other, whole branches as one where that is possible."""
    wanted = set(chosen)
    if not wanted:
        return []
    for pattern in ("*", *(f"*/{part}/*" for part in dict.fromkeys(name.split("/")[1] for name in names))):
        if {name for name in names if fnmatchcase(name, pattern)} == wanted:
            return [pattern]
    found: list[str] = []
    for name in chosen:
        if any(fnmatchcase(name, glob) for glob in found):
            continue
        found.append(next((glob for glob in _branches(name) if _inside(glob, names, wanted)), name))
    return found


def _branches(name: str) -> list[str]:
    """Globs of the branches around a site, the widest first."""
    parts = name.split("/")
    return ["/".join([*parts[:depth], "*"]) for depth in range(1, len(parts))]


def _inside(glob: str, names: Sequence[str], wanted: set[str]) -> bool:
    """Whether a glob stands for several names, all of them wanted."""
    matched = {name for name in names if fnmatchcase(name, glob)}
    return len(matched) > 1 and matched <= wanted

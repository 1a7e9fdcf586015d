"""SiteTree: the sites of a network as a tree with checkboxes: group, then actor or critic, then layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import traitlets

from marlnb.models.hooks.sites import Site, part_of
from marlnb.widgets.core.controls import JavaScriptWidget


class SiteTree(JavaScriptWidget):
    """Sites to choose from; checking a branch checks everything below it.

    Attributes:
        sites: name, number of agents, number of units and kind of each site.
        chosen: names of the checked sites, in the network's order.
    """

    _esm = Path(__file__).with_name("site_tree.js").read_text(encoding="utf-8")
    sites: traitlets.List[dict[str, Any]] = traitlets.List(traitlets.Dict()).tag(sync=True)
    chosen: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def show(self, sites: Iterable[Site], patterns: str | Sequence[str]) -> None:
        """Replaces the sites; those that match a pattern are checked."""
        globs = [patterns] if isinstance(patterns, str) else list(patterns)
        entries = [
            {"name": site.name, "agents": site.n_agents, "units": site.n_units, "kind": str(site.kind)}
            for site in sites
        ]
        with self.hold_trait_notifications():
            self.sites = entries
            self.chosen = [name for name in self.names if any(fnmatchcase(name, glob) for glob in globs)]

    @property
    def names(self) -> list[str]:
        return [str(entry["name"]) for entry in self.sites]

    @property
    def patterns(self) -> str | list[str]:
        """The shortest globs that match exactly the checked sites; `[]` if none is checked."""
        chosen = [name for name in self.names if name in self.chosen]
        globs = globs_for(chosen, self.names)
        return globs[0] if len(globs) == 1 else globs


def globs_for(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    """Globs that match the chosen names and no others; a whole branch is one glob where possible."""
    wanted = set(chosen)
    if not wanted:
        return []
    for glob in ("*", *(f"*/{part}/*" for part in dict.fromkeys(part_of(name) for name in names))):
        if _matches(glob, names) == wanted:
            return [glob]
    globs: list[str] = []
    for name in chosen:
        if any(fnmatchcase(name, glob) for glob in globs):
            continue
        parts = name.split("/")
        branches = ["/".join([*parts[:depth], "*"]) for depth in range(1, len(parts))]  # the widest first
        usable = (glob for glob in branches if len(matches := _matches(glob, names)) > 1 and matches <= wanted)
        globs.append(next(usable, name))
    return globs


def _matches(glob: str, names: Sequence[str]) -> set[str]:
    return {name for name in names if fnmatchcase(name, glob)}

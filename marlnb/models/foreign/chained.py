"""Chained: networks from elsewhere one after another, each reading what the one before puts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from marlnb.models.network import Network
from marlnb.models.packing import pad, stacked_shape, unpad
from marlnb.models.sites import Site, SiteKind


class Chained(Network):
    """Networks in order. The recurrent state holds the layers of each that remembers, in that order.

    Sites keep the names that they have in their networks where those differ; else they are told apart, all of them, as
    `part_1.<name>`, `part_2.<name>`.
    """

    def __init__(self, parts: Sequence[Network]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        first, last = parts[0], parts[-1]
        self.n_agents, self.in_features, self.out_features = first.n_agents, first.in_features, last.out_features
        self.centralised = bool(getattr(first, "centralised", False))
        self.mixes_agents = any(part.mixes_agents for part in parts)
        self.recurrent_shape = stacked_shape([part.recurrent_shape for part in parts])

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        leaving: list[Tensor] = []
        layer = 0
        for part in self._parts:
            shape = part.recurrent_shape
            if shape is None or self.recurrent_shape is None:
                x, _ = part(x)
                continue
            x, after = part(x, None if recurrent is None else unpad(recurrent, shape, layer))
            leaving.append(pad(after, (shape[0], self.recurrent_shape[1])))
            layer += shape[0]
        return x, torch.cat(leaving, dim=-2) if leaving else None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        return [
            (name, module, n_units, self._kind(part, kind))
            for part, names in zip(self._parts, self._names())
            for (_, module, n_units, kind), name in zip(part.site_modules(), names)
        ]

    def sites(self, prefix: str, n_agents: int, *, once_for_all: bool = False) -> list[Site]:
        """Of each part, since one may compute once for all agents and another not."""
        found = []
        for part, names in zip(self._parts, self._names()):
            once = once_for_all or bool(getattr(part, "once_for_all", False))
            for (_, module, n_units, kind), name in zip(part.site_modules(), names):
                found.append(Site(f"{prefix}/{name}", module, n_agents, n_units, self._kind(part, kind), once))
        return found

    def _names(self) -> list[list[str]]:
        """Of each part's sites."""
        own = [[name for name, *_ in part.site_modules()] for part in self._parts]
        every = [name for names in own for name in names]
        ends_early = any("head" in names for names in own[:-1])
        if len(set(every)) == len(every) and not ends_early:
            return own
        return [[f"part_{number}.{name}" for name in names] for number, names in enumerate(own, start=1)]

    def _kind(self, part: Network, kind: SiteKind) -> SiteKind:
        return "hidden" if kind == "head" and part is not self.parts[-1] else kind

    @property
    def _parts(self) -> Sequence[Network]:
        return cast(Sequence[Network], self.parts)

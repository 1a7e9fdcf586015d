"""SequentialNetwork: networks in order; each reads the output of the previous one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from marlnb.models.hooks.sites import Site, SiteKind, SiteModule
from marlnb.models.networks.network import Network, NetworkList
from marlnb.models.networks.packing import pad, stacked_shape, unpad


class SequentialNetwork(Network):
    """Networks in order. The recurrent state concatenates the layers of the recurrent networks, in that order.

    A network whose agent axis has size 1 reads the first row, because all rows are equal there. One forward pass serves
    all agents.

    Sites keep the names of their networks if the names are unique; otherwise they are `part_1.<name>`, `part_2.<name>`.
    """

    def __init__(self, parts: Sequence[Network]) -> None:
        super().__init__()
        self.parts = NetworkList(parts)
        first, last = parts[0], parts[-1]
        self.n_agents, self.in_features, self.out_features = first.n_agents, first.in_features, last.out_features
        self.centralised = first.centralised
        self.cross_agent = any(part.cross_agent for part in parts)
        self.recurrent_shape = stacked_shape([part.recurrent_shape for part in parts])

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        next_states: list[Tensor] = []
        layer = 0
        for part in self.parts:
            shape = part.recurrent_shape
            x = x[..., :1, :] if self._once(part) else x
            if shape is None or self.recurrent_shape is None:
                x, _ = part(x)
                continue
            state = None if recurrent is None else unpad(recurrent, shape, layer)
            x, next_state = part(x, state[..., :1, :, :] if state is not None and self._once(part) else state)
            next_state = next_state.expand(*next_state.shape[:-3], self.n_agents, *next_state.shape[-2:])
            next_states.append(pad(next_state, (shape[0], self.recurrent_shape[1])))
            layer += shape[0]
        x = x.expand(*x.shape[:-2], self.n_agents, -1)
        return x, torch.cat(next_states, dim=-2) if next_states else None

    def site_modules(self) -> list[SiteModule]:
        return [
            (name, module, n_units, self._kind(part, kind))
            for part, names in zip(self.parts, self._names())
            for (_, module, n_units, kind), name in zip(part.site_modules(), names)
        ]

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        """The sites of each part; a part may compute one forward pass for all agents, and another part may not."""
        sites_in_order = []
        for part, names in zip(self.parts, self._names()):
            once = shared_forward or self._once(part) or part.shared_forward
            for (_, module, n_units, kind), name in zip(part.site_modules(), names):
                sites_in_order.append(Site(f"{prefix}/{name}", module, n_agents, n_units, self._kind(part, kind), once))
        return sites_in_order

    def _names(self) -> list[list[str]]:
        """The names of each part's sites."""
        names_by_part = [[name for name, *_ in part.site_modules()] for part in self.parts]
        all_names = [name for names in names_by_part for name in names]
        ends_early = any("head" in names for names in names_by_part[:-1])
        if len(set(all_names)) == len(all_names) and not ends_early:
            return names_by_part
        return [[f"part_{number}.{name}" for name in names] for number, names in enumerate(names_by_part, start=1)]

    def _once(self, part: Network) -> bool:
        return part.n_agents == 1 < self.n_agents

    def _kind(self, part: Network, kind: SiteKind) -> SiteKind:
        return "hidden" if kind == "head" and part is not self.parts[-1] else kind

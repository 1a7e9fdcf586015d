"""GRU: hidden layers, a gated recurrent unit for each agent and a head; registered as `gru`."""

from __future__ import annotations

from torch import Tensor

from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.recurrent import GRUConfig as GRUConfig
from marlnb.models.networks.layers import AgentGRUCell
from marlnb.models.networks.recurrent import RecurrentNetwork


class GRU(RecurrentNetwork):
    """Hidden layers, a gated recurrent unit and a linear head. The state is the unit's."""

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: GRUConfig) -> None:
        super().__init__(n_agents, in_features, out_features, config)
        units, width = config.recurrent_size, self.add_hidden(in_features)
        self.recurrent_shape = (1, units)
        self.gru = AgentGRUCell(n_agents, width, units, shared=config.share_parameters)
        self.add_head(units)

    def project(self, x: Tensor) -> Tensor:
        return self.gru.project(self.hidden(x))

    def step(self, projected: Tensor, state: Tensor) -> Tensor:
        return self.gru(projected, state)  # type: ignore[no-any-return]

    def inner_sites(self) -> list[SiteModule]:
        return [("gru", self.gru, self.gru.units, "recurrent")]

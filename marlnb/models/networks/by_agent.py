"""Networks of different kinds within one group: the experiment names those of some agents, or of each.

`models.bob=gru` is for the group bob, `models.bob_0=lstm` for its agent bob_0 alone. Agents with equal options share
weights if these options say so. From outside it is one network, with all agents on the axis of input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from marlnb.config import ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import Site, SiteModule
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.networks.network import Network, NetworkList
from marlnb.models.networks.packing import pad, unpad, widest_shape
from marlnb.specs import GroupSpec, InputSpec

Stepped = tuple[Tensor, Tensor | None]  # outputs and the state
Run = Callable[[Network, Tensor, Tensor | None, list[int]], Stepped]


class ByAgent(Network):
    """One network for each of several sets of agents; together the sets contain every agent once.

    Args:
        agents: the agents' names, in the group's order.
        members: for each network, the indices of its agents. Messages stay within one network.
        networks: the networks.
    """

    order: Tensor

    def __init__(self, agents: Sequence[str], members: Sequence[Sequence[int]], networks: Sequence[Network]) -> None:
        super().__init__()
        self.agents, self.members = tuple(agents), [list(indices) for indices in members]
        self.networks = NetworkList(networks)
        self.n_agents = len(agents)
        self.in_features, self.out_features = networks[0].in_features, networks[0].out_features
        self.recurrent_shape = widest_shape([network.recurrent_shape for network in networks])
        self.cross_agent = any(network.cross_agent for network in networks)
        row_of = {agent: row for row, agent in enumerate(index for indices in self.members for index in indices)}
        self.register_buffer("order", torch.tensor([row_of[k] for k in range(len(agents))]), persistent=False)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self._together(lambda network, x, entering, rows: network(x, entering), x, recurrent)

    def sequence(
        self, x: Tensor, recurrent: Tensor | None, is_init: Tensor, acting: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        def run(network: Network, x: Tensor, entering: Tensor | None, rows: list[int]) -> Stepped:
            return network.sequence(x, entering, is_init, None if acting is None else acting[..., rows])

        return self._together(run, x, recurrent)

    def site_modules(self) -> list[SiteModule]:
        """Each module once, under the name of its first agent; `sites` has a site for every agent."""
        return [
            (f"{self.agents[indices[0]]}/{layer}", module, n_units, kind)
            for indices, network in zip(self.members, self.networks)
            for layer, module, n_units, kind in network.site_modules()
        ]

    def sites(self, prefix: str, n_agents: int, *, shared_forward: bool = False) -> list[Site]:
        """`<prefix>/<agent>/<layer>`, an agent's sites together, the agents in the group's order."""
        sites = []
        for agent, name in enumerate(self.agents):
            indices, network = next(pair for pair in zip(self.members, self.networks) if agent in pair[0])
            row = indices.index(agent)
            sites += [
                Site(f"{prefix}/{name}/{layer}", module, 1, n_units, kind, agents=(agent,), rows=(row,))
                for layer, module, n_units, kind in network.site_modules()
            ]
        return sites

    def _together(self, run: Run, x: Tensor, recurrent: Tensor | None) -> tuple[Tensor, Tensor | None]:
        outputs, states = [], []
        for indices, network in zip(self.members, self.networks):
            shape, entering = network.recurrent_shape, None
            if shape is not None and recurrent is not None:
                entering = unpad(recurrent[..., indices, :, :], shape)
            output, after = run(network, x[..., indices, :], entering, indices)
            outputs.append(output)
            if self.recurrent_shape is not None:
                if after is None:
                    after = output.new_zeros(*output.shape[:-1], *self.recurrent_shape)
                states.append(pad(after, self.recurrent_shape))
        together = torch.cat(outputs, dim=-2).index_select(-2, self.order)
        return together, torch.cat(states, dim=-3).index_select(-3, self.order) if states else None


@dataclass(frozen=True)
class ByAgentConfig(ModelConfig):
    """The options that `by_agent` creates from an experiment's; they have no registered name.

    The group as a whole shares nothing: every agent has its own head and standard deviation.
    """

    share_parameters: bool = option(False, help="of the group as a whole")
    agents: tuple[str, ...] = option((), help="the group's agents")
    configs: tuple[ModelConfig, ...] = option((), help="each agent's network")

    @property
    def recurrent(self) -> bool:
        return any(config.recurrent for config in self.configs)

    def build(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        if n_agents != len(self.agents):
            raise ConfigError(
                f"networks by agent, for {', '.join(self.agents)}, have {len(self.agents)} agents; "
                f"requested one network for {n_agents}"
            )
        kinds = [config for k, config in enumerate(self.configs) if config not in self.configs[:k]]
        members = [[k for k, config in enumerate(self.configs) if config == kind] for kind in kinds]
        networks = [build_network(kind, len(indices), inputs, out_features) for kind, indices in zip(kinds, members)]
        return ByAgent(self.agents, members, networks)


ByAgentConfig.name = "by_agent"


def by_agent(group: GroupSpec, default: ModelConfig, named: Mapping[str, ModelConfig]) -> ModelConfig:
    """The options of a group's network: `default`, unless some of its agents are `named` (as well as groups)."""
    configs = tuple(default if agent == group.name else named.get(agent, default) for agent in group.agents)
    if all(config == configs[0] for config in configs):
        return configs[0]
    return ByAgentConfig(agents=group.agents, configs=configs)

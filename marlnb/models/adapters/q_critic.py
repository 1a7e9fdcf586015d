"""ForeignQCritic: critics from elsewhere that judge continuous actions, as those of SAC, DDPG and MADDPG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.adapters.policy import Reads, flat, joint, network_is_central, whole_state
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.specs import EnvSpec, GroupSpec


class ForeignQCritic(nn.Module):
    """One network that judges the actions of a group's agents, or several (twins), of which the smallest value counts.

    Args:
        reads: beside the actions: observation, each agent's observation followed by its action (a centralised network
            reads those of all agents in a row); joint, all agents' observations in a row, or state, the environment's,
            followed by all actions of the group.
    Raises:
        ConfigError: what it reads is of another size.
    """

    def __init__(self, group: GroupSpec, networks: Sequence[Network], env: EnvSpec, reads: Reads) -> None:
        super().__init__()
        self.group, self.env, self.reads = group, env, reads
        self.networks = nn.ModuleList(networks)
        first = networks[0]
        own = group.observation.size + group.action.n_components
        seen = {
            "state": 0 if env.state_shape is None else torch.Size(env.state_shape).numel(),
            "joint": sum(member.n_agents * member.observation.size for member in env.groups),
        }
        if reads == "observation":
            size = own * (group.n_agents if network_is_central(first) else 1)
        else:
            size = seen[reads] + group.n_agents * group.action.n_components
        if size != first.in_features:
            raise ConfigError(
                f"the critic of {group.name!r} reads {first.in_features} features; the {reads} and actions in "
                f"{env.name}: {size}"
            )
        self.shared_forward = first.n_agents == 1 < group.n_agents

    def forward(self, observations: Mapping[str, Tensor], state: Tensor | None, action: Tensor) -> Tensor:
        """Each network's Q values of actions `[..., agent, component]` in the environment's units.

        Returns:
            `[network, ..., agent]`.
        """
        read = self._inputs(observations, state, action)
        values = torch.stack([network(read)[0].squeeze(-1) for network in self._networks])
        return values.expand(*values.shape[:-1], self.group.n_agents)

    def estimate(
        self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor, distribution: ActionDistribution
    ) -> Tensor:
        """Values `[..., agent]`: the smallest Q of what all would do without exploring."""
        return self(observations, state, distribution.mode(logits).action).amin(0)  # type: ignore[no-any-return]

    def sites(self) -> list[Site]:
        return sites_of_each(self._networks, self.group, shared_forward=self.shared_forward)

    def _inputs(self, observations: Mapping[str, Tensor], state: Tensor | None, action: Tensor) -> Tensor:
        """`[..., row, feature]`, a row for each agent, or one for all."""
        if self.reads == "observation":
            return torch.cat((flat(observations[self.group.name], self.group), action), dim=-1)
        by_state = self.reads == "state"
        seen = whole_state(self.group, self.env, state) if by_state else joint(self.env, observations)
        whole = torch.cat((seen, action.flatten(-2)), dim=-1)
        return whole.unsqueeze(-2).expand(*whole.shape[:-1], self._networks[0].n_agents, -1)

    @property
    def _networks(self) -> Sequence[Network]:
        return cast(Sequence[Network], self.networks)


def sites_of_each(networks: Sequence[Network], group: GroupSpec, *, shared_forward: bool) -> list[Site]:
    """The sites of several critics: `<group>/critic`, `<group>/critic_2` and on."""
    names = ["critic", *(f"critic_{k}" for k in range(2, len(networks) + 1))]
    return [
        site
        for name, network in zip(names, networks)
        for site in network.sites(f"{group.name}/{name}", group.n_agents, shared_forward=shared_forward)
    ]

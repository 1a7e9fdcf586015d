"""ExternalQCritic: Q networks of other libraries for continuous actions, as in SAC, DDPG and MADDPG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from marlnb.models.adapters.critic import Reads, check_input_size, flat, joint_input
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.network import Network, NetworkList
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.specs import EnvSpec, GroupSpec


class ActionCritic(nn.Module):
    """One or several networks of Q values of a group's actions.

    Args:
        group: the group whose actions it evaluates.
        networks: the Q networks.
        env: the environment.
        reads: what the networks read, besides actions.
        per_agent: number of additional features per agent, if the networks read observations.
        joint: number of additional features of a joint vector.
    Raises:
        ConfigError: the input has another size in this environment.
    """

    def __init__(
        self, group: GroupSpec, networks: Sequence[Network], env: EnvSpec, reads: Reads, *, per_agent: int, joint: int
    ) -> None:
        super().__init__()
        self.group, self.env, self.reads, self.networks = group, env, reads, NetworkList(networks)
        check_input_size(group, networks[0], env, reads, per_agent=per_agent, joint=joint)
        self.shared_forward = networks[0].n_agents == 1 < group.n_agents

    def sites(self) -> list[Site]:
        """The sites of each network: `<group>/critic`, `<group>/critic_2` and so on."""
        names = ["critic", *(f"critic_{k}" for k in range(2, len(self.networks) + 1))]
        return [
            site
            for name, network in zip(names, self.networks)
            for site in network.sites(
                f"{self.group.name}/{name}", self.group.n_agents, shared_forward=self.shared_forward
            )
        ]


class ExternalQCritic(ActionCritic):
    """One or several (twin) Q networks of a group's actions: `Q = min_k Q_k`.

    Args:
        group: the group whose actions it evaluates.
        networks: the Q networks.
        env: the environment.
        reads: the input before the actions. observation: each agent's observation, then its action (a centralised
            network reads those of all agents, concatenated); joint or state: one vector, then all actions of the group.
    Raises:
        ConfigError: the input has another size in this environment.
    """

    def __init__(self, group: GroupSpec, networks: Sequence[Network], env: EnvSpec, reads: Reads) -> None:
        components = group.action.n_components
        super().__init__(group, networks, env, reads, per_agent=components, joint=group.n_agents * components)

    def forward(self, observations: Mapping[str, Tensor], state: Tensor | None, action: Tensor) -> Tensor:
        """Each network's Q values, `[network, ..., agent]`.

        Args:
            observations: by group, `[..., agent, *shape]`.
            state: `[..., *state_shape]` if the environment has a state.
            action: `[..., agent, component]`, in the environment's units.
        """
        inputs = self._inputs(observations, state, action)
        values = torch.stack([network(inputs)[0].squeeze(-1) for network in self.networks])
        return values.expand(*values.shape[:-1], self.group.n_agents)

    def estimate(
        self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor, distribution: ActionDistribution
    ) -> Tensor:
        """Values `[..., agent]`: the smallest Q of the actions chosen without exploration."""
        return self(observations, state, distribution.mode(logits).action).amin(0)  # type: ignore[no-any-return]

    def _inputs(self, observations: Mapping[str, Tensor], state: Tensor | None, action: Tensor) -> Tensor:
        """`[..., row, feature]`, one row per agent, or one for all agents."""
        if self.reads == "observation":
            return torch.cat((flat(observations[self.group.name], self.group), action), dim=-1)
        joint = joint_input(self.group, self.env, self.reads, observations, state)
        joint = torch.cat((joint, action.flatten(-2)), dim=-1)
        return joint.unsqueeze(-2).expand(*joint.shape[:-1], self.networks[0].n_agents, -1)

"""ExternalCritic: a state-value critic of another library; and the inputs that such critics can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, SiteError
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.network import Network
from marlnb.specs import EnvSpec, GroupSpec

Reads = Literal["observation", "joint", "state"]
"""What a critic reads.

observation: each agent's observation; if the network is centralised, those of the group, concatenated.
joint: all agents' observations, concatenated in the order of `EnvSpec.agents`.
state: the environment's state.
"""


class ExternalCritic(nn.Module):
    """A state-value critic: a network and its input.

    Args:
        group: the group whose values it estimates.
        network: its agent axis has the group's size, or size 1 if one forward pass serves all agents.
        env: the environment.
        reads: what the network reads.
    Raises:
        ConfigError: its input has another size in this environment.
    """

    def __init__(self, group: GroupSpec, network: Network, env: EnvSpec, reads: Reads = "observation") -> None:
        super().__init__()
        self.group, self.network, self.env, self.reads = group, network, env, reads
        check_input_size(group, network, env, reads)
        self.shared_forward = network.n_agents == 1 < group.n_agents
        self.recurrent_shape = network.recurrent_shape

    def forward(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor:
        """Values `[..., agent]`, from a recurrent state of zeros."""
        return self.step(observations, state)[0]

    def step(
        self, observations: Mapping[str, Tensor], state: Tensor | None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Values `[..., agent]`, and the next recurrent state `[..., agent, layer, unit]`."""
        if recurrent is not None and self.shared_forward:
            recurrent = recurrent[..., :1, :, :]
        output, next_state = self.network(self.inputs(observations, state), recurrent)
        values, n = output.squeeze(-1), self.group.n_agents
        if next_state is not None:
            next_state = next_state.expand(*next_state.shape[:-3], n, *next_state.shape[-2:])
        return values.expand(*values.shape[:-1], n), next_state

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor:
        """`[..., row, feature]`, one row per agent, or one for all agents."""
        if self.reads == "observation":
            return flat(observations[self.group.name], self.group)
        joint = joint_input(self.group, self.env, self.reads, observations, state)
        return joint.unsqueeze(-2).expand(*joint.shape[:-1], self.network.n_agents, -1)

    def sites(self) -> list[Site]:
        return self.network.sites(f"{self.group.name}/critic", self.group.n_agents, shared_forward=self.shared_forward)


def check_input_size(
    group: GroupSpec, network: Network, env: EnvSpec, reads: Reads, *, per_agent: int = 0, joint: int = 0
) -> None:
    """Checks the input size of a critic's network.

    Args:
        group: the critic's group.
        network: the critic's network.
        env: the environment.
        reads: what it reads.
        per_agent: number of additional features per agent, if it reads observations.
        joint: number of additional features of a joint vector.
    Raises:
        ConfigError: the size differs.
    """
    size = {
        "observation": (group.observation.size + per_agent) * (group.n_agents if network.centralised else 1),
        "joint": sum(member.n_agents * member.observation.size for member in env.groups) + joint,
        "state": (0 if env.state_shape is None else int(torch.Size(env.state_shape).numel())) + joint,
    }[reads]
    if size != network.in_features:
        inputs = f"{reads} and actions" if per_agent or joint else reads
        raise ConfigError(
            f"the critic of {group.name!r} reads {network.in_features} features; {inputs} in {env.name}: "
            f"{size} features"
        )


def joint_input(
    group: GroupSpec, env: EnvSpec, reads: Reads, observations: Mapping[str, Tensor], state: Tensor | None
) -> Tensor:
    """All agents' observations, in the order of `EnvSpec.agents`, or the environment's state, as `[..., feature]`.

    Raises:
        SiteError: the critic reads the state, and the state is None.
    """
    if reads == "joint":
        return torch.cat([flat(observations[member.name], member).flatten(-2) for member in env.groups], dim=-1)
    if state is None or env.state_shape is None:
        raise SiteError(f"the critic of {group.name!r} reads the environment's state; got state=None")
    return state.flatten(state.ndim - len(env.state_shape))


def flat(observation: Tensor, group: GroupSpec) -> Tensor:
    """`[..., agent, *shape]` -> `[..., agent, feature]`, with the same dtype."""
    n_axes = len(group.observation.shape)
    if n_axes == 1:
        return observation
    return observation.flatten(-n_axes) if n_axes else observation.unsqueeze(-1)

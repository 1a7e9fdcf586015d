"""Critic: the values of a group's agents, from each agent's own observation or from everything that is observed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.errors import ShapeError
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.networks.inputs import features
from marlnb.models.networks.network import Network
from marlnb.specs import EnvSpec, GroupSpec, InputRole, InputSpec


class Critic(nn.Module):
    """Normalised values `[..., agent]` of a group's agents.

    Decentralised: each agent from its own observation. Centralised: every group's observations, agent by agent in the
    environment's order, then its state if it has one, concatenated to one vector. With shared weights that vector
    passes once through one network, whose head has a unit for each agent's value, so the sites have an agent axis of
    1. With unshared weights each agent has its own network.
    """

    def __init__(self, group: GroupSpec, env: EnvSpec, config: ModelConfig, *, centralised: bool) -> None:
        super().__init__()
        self.group_name, self.n_agents, self.centralised = group.name, group.n_agents, centralised
        self.axes = {other.name: len(other.observation.shape) for other in env.groups}
        self.reads = tuple(self.axes) if centralised else (group.name,)
        self.state_axes = len(env.state_shape or ())
        self.reads_state = centralised and env.state_shape is not None
        self.shared_forward = centralised and config.share_parameters
        if self.shared_forward:
            self.network: Network = build_network(config, 1, joint_input_spec(env), group.n_agents)
        else:
            inputs = joint_input_spec(env) if centralised else InputSpec((group.observation.shape,))
            self.network = build_network(config, group.n_agents, inputs, 1)

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None = None) -> Tensor:
        """The argument of `forward`, `[..., agent, feature]` (an agent axis of 1 if centralised).

        Args:
            observations: by group, as in `Policy.value`, `[..., agent, *shape]`.
            state: `[..., *state_shape]` where the environment has a state.
        Raises:
            ShapeError: the environment has a state, and `state` is None.
        """
        if not self.centralised:
            return features(observations[self.group_name], self.axes[self.group_name])
        axes = {name: self.axes[name] for name in self.reads}
        state_axes = self.state_axes if self.reads_state else None
        return joint_features(self.group_name, observations, axes, state, state_axes).unsqueeze(-2)

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalised values `[..., agent]` for one time step from the zero recurrent state."""
        return self.step(inputs)[0]

    def step(self, inputs: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Normalised values `[..., agent]`, and the recurrent state after the step, `[..., agent, layer, unit]`."""
        output, recurrent = self.network(self.expand_inputs(inputs), recurrent)
        return self.agent_values(output), recurrent

    def expand_inputs(self, inputs: Tensor) -> Tensor:
        """Inputs `[..., agent, feature]` for the network: the joint vector, repeated for unshared networks."""
        if not self.centralised or self.shared_forward:
            return inputs
        return inputs.expand(*inputs.shape[:-2], self.n_agents, inputs.shape[-1])

    def agent_values(self, output: Tensor) -> Tensor:
        """The network's output `[..., agent, 1]` or `[..., 1, agent]` as values `[..., agent]`."""
        return output.squeeze(-2 if self.shared_forward else -1)


def joint_features(
    group: str,
    observations: Mapping[str, Tensor],
    axes: Mapping[str, int],
    state: Tensor | None,
    state_axes: int | None,
) -> Tensor:
    """What a critic of `group` reads: all groups' observations, agent by agent, then the state, `[..., feature]`.

    Args:
        axes: number of axes of each group's observation.
        state_axes: number of axes of the state; None: it is not read.
    Raises:
        ShapeError: the state is read, and it is None.
    """
    parts = [features(observations[name], n_axes).flatten(-2) for name, n_axes in axes.items()]
    if state_axes is not None:
        if state is None:
            raise ShapeError(f"the centralised critic of {group!r} needs the environment's state; got None")
        parts.append(features(state, state_axes))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def joint_input_spec(env: EnvSpec) -> InputSpec:
    """Every agent's observation, then the state if there is one."""
    observations = [group.observation.shape for group in env.groups for _ in group.agents]
    roles: list[InputRole] = ["observation"] * len(observations)
    if env.state_shape is None:
        return InputSpec(tuple(observations), roles=tuple(roles))
    return InputSpec((*observations, env.state_shape), roles=(*roles, "state"))

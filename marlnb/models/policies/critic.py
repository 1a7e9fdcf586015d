"""Critic: a group's values, from each agent's own observation or from everyone's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.errors import ShapeError
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor import features
from marlnb.specs import EnvSpec, GroupSpec, InputSpec


class Critic(nn.Module):
    """Normalised values `[..., agent]` of a group's agents.

    Decentralised: each agent from its own observation. Centralised: every group's observations, agent by agent in the
    environment's order, and its state where there is one, concatenated to one vector. With shared weights that vector
    goes once through one network, whose head has a unit for each agent's value, so the sites have an agent axis of 1;
    unshared, each agent has a network of its own.
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
            self.network: Network = config.build(1, joint_inputs(env), group.n_agents)
        else:
            inputs = joint_inputs(env) if centralised else InputSpec((group.observation.shape,))
            self.network = config.build(group.n_agents, inputs, 1)

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None = None) -> Tensor:
        """What `forward` takes, made of `Policy.value`'s arguments: `[..., agent, feature]`, one agent if centralised.

        Raises:
            ShapeError: the environment has a state, and none was given.
        """
        if not self.centralised:
            return features(observations[self.group_name], self.axes[self.group_name])
        parts = [features(observations[name], self.axes[name]).flatten(-2) for name in self.reads]
        if self.reads_state:
            if state is None:
                raise ShapeError(
                    f"the centralised critic of {self.group_name!r} needs the environment's state; got None"
                )
            parts.append(features(state, self.state_axes))
        return torch.cat(parts, dim=-1).unsqueeze(-2)

    def forward(self, inputs: Tensor) -> Tensor:
        """One moment from the zero recurrent state (`step` takes another)."""
        return self.step(inputs)[0]

    def step(self, inputs: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Normalised values `[..., agent]`, and the recurrent state after the step."""
        output, recurrent = self.network(self.spread(inputs), recurrent)
        return self.by_agent(output), recurrent

    def spread(self, inputs: Tensor) -> Tensor:
        """Inputs as the network takes them: the common vector seen by each agent's network where there are several."""
        if not self.centralised or self.shared_forward:
            return inputs
        return inputs.expand(*inputs.shape[:-2], self.n_agents, inputs.shape[-1])

    def by_agent(self, output: Tensor) -> Tensor:
        """The network's output as values `[..., agent]`."""
        return output.squeeze(-2 if self.shared_forward else -1)


def joint_inputs(env: EnvSpec) -> InputSpec:
    """Every agent's observation, then the state where there is one."""
    observations = [group.observation.shape for group in env.groups for _ in group.agents]
    return InputSpec((*observations, *(() if env.state_shape is None else (env.state_shape,))))

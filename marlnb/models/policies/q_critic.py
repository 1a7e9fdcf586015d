"""QCritic: Q values of a group's actions, from each agent's own observation or from everything that is observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.networks.inputs import features
from marlnb.models.networks.layers import HiddenLayer
from marlnb.models.networks.mlp import MLP
from marlnb.models.policies.critic import joint_features, joint_input_spec
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, InputRole, InputSpec


class ActionEncoder(nn.Module):
    """Encodes an action for a critic, `[..., code]`: one-hot for each choice, or each component scaled to -1..1."""

    low: Tensor
    high: Tensor
    scale: Tensor

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.spec, self.size = spec, spec.n_components if spec.kind == "continuous" else spec.n_logits
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("scale", (high - low) / 2, persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Codes `[..., code]` of actions `[...]` (discrete) or `[..., component]`."""
        if self.spec.kind == "continuous":
            return (action - self.low) / self.scale - 1
        choices = action.unsqueeze(-1) if self.spec.kind == "discrete" else action
        return torch.cat([_one_hot(choice, n) for choice, n in zip(choices.unbind(-1), self.spec.n)], dim=-1)

    def decode(self, code: Tensor) -> Tensor:
        """The continuous action `[..., component]` of a code, in the environment's units."""
        return ((code + 1) * self.scale + self.low).clamp(self.low, self.high)  # against rounding


class QCritic(nn.Module):
    """Q values of the actions taken, `[..., agent]`, and of each choice that an agent has, `[..., agent, choice]`.

    Decentralised: each agent from its own observation and action. Centralised: from every agent's observation, agent
    by agent in the environment's order, the state if there is one, then every agent's action. With shared weights the
    joint vector passes once through one network, whose head has a unit for each agent's value, so the sites have an
    agent axis of 1; with unshared weights each agent has its own network.

    Args:
        group: the agents and their spaces.
        env: the environment.
        config: the network.
        centralised: read every group's observations and actions, and the state.
        all_actions: read no action, and have a unit in the head for each choice of a discrete one; decentralised only.
    """

    _own: Tensor

    def __init__(
        self, group: GroupSpec, env: EnvSpec, config: ModelConfig, *, centralised: bool, all_actions: bool = False
    ) -> None:
        super().__init__()
        self.group_name, self.n_agents, self.centralised = group.name, group.n_agents, centralised
        self.all_actions = all_actions
        groups = env.groups if centralised else (group,)
        self.axes = {other.name: len(other.observation.shape) for other in groups}
        self.encoders = nn.ModuleDict({other.name: ActionEncoder(other.action) for other in groups})
        self.reads = tuple(self.axes)
        self.state_axes = len(env.state_shape or ())
        self.reads_state = centralised and env.state_shape is not None
        self.shared_forward = centralised and config.share_parameters
        if centralised:
            inputs = joint_q_input_spec(env)
        elif all_actions:
            inputs = InputSpec((group.observation.shape,))
        else:
            parts = (group.observation.shape, (ActionEncoder(group.action).size,))
            inputs = InputSpec(parts, roles=("observation", "action"))
        if self.shared_forward:
            self.network = build_network(config, 1, inputs, group.n_agents)
        else:
            self.network = build_network(config, group.n_agents, inputs, group.action.n_logits if all_actions else 1)
        self.register_buffer("_own", torch.eye(group.n_agents, dtype=torch.bool).unsqueeze(-1), persistent=False)

    def encode_action(self, group: str, action: Tensor) -> Tensor:
        """A group's actions `[..., agent(, component)]` as the critic reads them, `[..., agent, code]`."""
        code: Tensor = self.encoders[group](action)
        return code

    def decode_action(self, group: str, code: Tensor) -> Tensor:
        """The continuous actions of codes `[..., agent, code]`, in the environment's units."""
        return cast(ActionEncoder, self.encoders[group]).decode(code)

    def encode_observations(self, observations: Mapping[str, Tensor], state: Tensor | None = None) -> Tensor:
        """All inputs but the actions: decentralised `[..., agent, feature]`, centralised `[..., feature]`.

        Raises:
            ShapeError: the environment has a state, and `state` is None.
        """
        if not self.centralised:
            return features(observations[self.group_name], self.axes[self.group_name])
        state_axes = self.state_axes if self.reads_state else None
        return joint_features(self.group_name, observations, self.axes, state, state_axes)

    def forward(self, encoded: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        """Q of the actions taken, `[..., agent]`; of a critic of all actions, of each choice `[..., agent, choice]`.

        Args:
            encoded: the result of `encode_observations`.
            codes: encoded actions by group, `[..., agent, code]`; a critic of all actions reads none.
        """
        if self.all_actions:
            return self.network(encoded)[0]  # type: ignore[no-any-return]
        if not self.centralised:
            inputs = torch.cat((encoded, codes[self.group_name]), dim=-1)
            return self.network(inputs)[0].squeeze(-1)  # type: ignore[no-any-return]
        joint = self._joint(encoded, codes).unsqueeze(-2)
        if self.shared_forward:
            output = self.network(joint)[0]
            return output.squeeze(-2)
        output = self.network(joint.expand(*joint.shape[:-2], self.n_agents, joint.shape[-1]))[0]
        return output.squeeze(-1)

    def q_with_own_action(self, encoded: Tensor, codes: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """Q `[..., agent]` of each agent with its own action replaced by `own`, the others' as in `codes`:

            Q_i(x, a_1, ..., a_i = own_i, ..., a_N)

        Args:
            encoded: the result of `encode_observations`.
            codes: encoded actions by group, `[..., agent, code]`.
            own: encoded actions, `[..., agent, code]`.
        Source: Lowe et al. 2017, equation 6 (arXiv:1706.02275).
        """
        if not self.centralised or self.n_agents == 1:
            return self.forward(encoded, {**codes, self.group_name: own})
        if self.shared_forward and isinstance(self.network, MLP) and len(self.network.hidden):
            changes = (own - codes[self.group_name]).transpose(-2, -3) @ self._own_columns(self.network, encoded, codes)
            sums = self._first_sums(self.network, encoded, codes).unsqueeze(-3) + changes  # agent, sample, unit
            return _after_first_sums(self.network, sums).diagonal(dim1=-3, dim2=-1)
        rows = self._rows(encoded, codes, own)
        if not self.shared_forward:
            output: Tensor = self.network(rows)[0]
            return output.squeeze(-1)
        output = self.network(rows.unsqueeze(-2))[0].squeeze(-2)
        return output.diagonal(dim1=-2, dim2=-1)

    def q_of_choices(self, encoded: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        """Q `[..., agent, choice]` of each choice of each agent, with the other agents' actions as in `codes`:

            Q_i(x, a_1, ..., a_i = choice, ..., a_N)

        For discrete actions. It does not depend on the agent's own action in `codes`.

        Args:
            encoded: the result of `encode_observations`.
            codes: encoded actions by group, `[..., agent, code]`.
        Source: COMA, Foerster et al. 2018, section 4 (arXiv:1705.08926).
        """
        if self.all_actions:
            return self.forward(encoded, codes)
        taken = codes[self.group_name]
        if self.shared_forward and isinstance(self.network, MLP) and len(self.network.hidden):
            columns = self._own_columns(self.network, encoded, codes)
            sums = self._first_sums(self.network, encoded, codes).unsqueeze(-3) - taken.transpose(-2, -3) @ columns
            sums = sums.unsqueeze(-3) + columns.unsqueeze(-2)  # agent, choice, sample, unit
            return _after_first_sums(self.network, sums).diagonal(dim1=-4, dim2=-1).movedim(-3, -1)
        choices = torch.eye(taken.shape[-1], dtype=taken.dtype, device=taken.device)
        values = [self.q_with_own_action(encoded, codes, choice.expand_as(taken)) for choice in choices]
        return torch.stack(values, dim=-1)

    def _joint(self, encoded: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        return torch.cat((encoded, *(codes[name].flatten(-2) for name in self.reads)), dim=-1)

    def _first_sums(self, network: MLP, encoded: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        """The first layer's weighted sums of the joint vector, `[..., unit]`, which the agents have in common.

        Another own action changes only the part of its columns W_i:

            W x_i + b = (W x + b) + W_i (own_i - a_i)
        """
        sums: Tensor = cast(HiddenLayer, network.hidden[0]).linear(self._joint(encoded, codes))
        return sums

    def _own_columns(self, network: MLP, encoded: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        """The first layer's weights of each agent's own action, `[agent, code, unit]`."""
        (n, size), before = codes[self.group_name].shape[-2:], self.reads.index(self.group_name)
        start = encoded.shape[-1] + sum(codes[name].shape[-2:].numel() for name in self.reads[:before])
        weight = cast(HiddenLayer, network.hidden[0]).linear.weight
        return weight[..., start : start + n * size].unflatten(-1, (n, size)).movedim(-3, -1).contiguous()

    def _rows(self, encoded: Tensor, codes: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """The joint vector for each agent `[..., agent, feature]`, with its own action replaced by `own`."""
        lead, n = encoded.shape[:-1], self.n_agents
        parts = [encoded.unsqueeze(-2).expand(*lead, n, encoded.shape[-1])]
        for name in self.reads:
            code = codes[name]
            if name == self.group_name:
                parts.append(torch.where(self._own, own.unsqueeze(-3), code.unsqueeze(-3)).flatten(-2))
            else:
                parts.append(code.flatten(-2).unsqueeze(-2).expand(*lead, n, code.shape[-2] * code.shape[-1]))
        return torch.cat(parts, dim=-1)


def joint_q_input_spec(env: EnvSpec) -> InputSpec:
    """Every agent's observation, the state if there is one, then every agent's encoded action."""
    actions = [(ActionEncoder(group.action).size,) for group in env.groups for _ in group.agents]
    roles: list[InputRole] = ["action"] * len(actions)
    joint = joint_input_spec(env)
    return InputSpec((*joint.parts, *actions), roles=(*joint.roles, *roles))


def _after_first_sums(network: MLP, sums: Tensor) -> Tensor:
    """The network's output from its first layer's weighted sums."""
    first, *later = cast(list[HiddenLayer], list(network.hidden))
    x = first.activate(sums)
    for layer in later:
        x = layer(x)
    output: Tensor = network.head(x)
    return output


def _one_hot(index: Tensor, n: int) -> Tensor:
    return (index.unsqueeze(-1) == torch.arange(n, device=index.device)).float()

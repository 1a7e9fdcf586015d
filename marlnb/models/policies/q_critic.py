"""QCritic: Q values of a group's actions, from each agent's own observation or from everything that is observed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import cast

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.models.networks.inputs import features
from marlnb.models.networks.layers import HiddenLayer
from marlnb.models.networks.mlp import MLP
from marlnb.models.policies.critic import joint_features, joint_input_spec
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, InputSpec


class ActionEncoder(nn.Module):
    """Encodes an action for a critic, `[..., code]`: one-hot for each choice, or each component scaled to -1..1."""

    low: Tensor
    scale: Tensor

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.spec, self.size = spec, spec.n_components if spec.kind == "continuous" else spec.n_logits
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("scale", (high - low) / 2, persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Codes `[..., code]` of actions `[...]` (discrete) or `[..., component]`."""
        if self.spec.kind == "continuous":
            return (action - self.low) / self.scale - 1
        choices = action.unsqueeze(-1) if self.spec.kind == "discrete" else action
        return torch.cat([_one_hot(choice, n) for choice, n in zip(choices.unbind(-1), self.spec.n)], dim=-1)

    def decode(self, code: Tensor) -> Tensor:
        """The continuous action `[..., component]` of a code, in the environment's units."""
        return (code + 1) * self.scale + self.low


class QCritic(nn.Module):
    """Q values of the actions taken, `[..., agent]`, or of each choice that an agent has, `[..., agent, choice]`.

    Decentralised: each agent from its own observation and action. Centralised: from every agent's observation, agent
    by agent in the environment's order, the state if there is one, then every agent's action.
    Of the actions taken: with shared weights the joint vector passes once through one network, whose head has a unit
    for each agent's value, so the sites have an agent axis of 1; with unshared weights each agent has its own network.
    Of every choice: an agent's network, shared or not, reads the joint vector with the agent's own action set to zero,
    and its head has a unit for each choice, as in COMA (Foerster et al. 2018, section 4, arXiv:1705.08926). A shared
    network reads the agents of the group in a circle that begins with the agent itself (`own_first`), since it must
    know whose choice it values.

    Args:
        group: the agents and their spaces.
        env: the environment.
        config: the network.
        centralised: read every group's observations and actions, and the state.
        all_actions: evaluate every choice of a discrete action at once, rather than the one taken.
    """

    _own: Tensor
    _order: Tensor | None

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
        self.shared_forward = centralised and config.share_parameters and not all_actions
        if centralised:
            inputs = joint_q_input_spec(env)
        else:
            observation = group.observation.shape
            inputs = InputSpec((observation,) if all_actions else (observation, (ActionEncoder(group.action).size,)))
        if self.shared_forward:
            self.network = config.build(1, inputs, group.n_agents)
        else:
            self.network = config.build(group.n_agents, inputs, group.action.n_logits if all_actions else 1)
        is_shared = centralised and all_actions and config.share_parameters and group.n_agents > 1
        self.register_buffer("_order", own_first(group, env) if is_shared else None, persistent=False)
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
        """Q `[..., agent]`, or of each own choice given the others' actions `[..., agent, choice]`.

        Args:
            encoded: the result of `encode_observations`.
            codes: encoded actions by group, `[..., agent, code]`; a decentralised critic of all actions reads none.
        """
        if self.all_actions:
            inputs = encoded
            if self.centralised:
                inputs = self._rows(encoded, codes, torch.zeros_like(codes[self.group_name]))
                if self._order is not None:
                    inputs = inputs.gather(-1, self._order.expand_as(inputs))
            return self.network(inputs)[0]  # type: ignore[no-any-return]
        if not self.centralised:
            inputs = torch.cat((encoded, codes[self.group_name]), dim=-1)
            return self.network(inputs)[0].squeeze(-1)  # type: ignore[no-any-return]
        joint = torch.cat((encoded, *(codes[name].flatten(-2) for name in self.reads)), dim=-1).unsqueeze(-2)
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
            return self._q_by_difference(self.network, encoded, codes, own)
        rows = self._rows(encoded, codes, own)
        if not self.shared_forward:
            output: Tensor = self.network(rows)[0]
            return output.squeeze(-1)
        output = self.network(rows.unsqueeze(-2))[0].squeeze(-2)
        return output.diagonal(dim1=-2, dim2=-1)

    def _q_by_difference(self, network: MLP, encoded: Tensor, codes: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """As `q_with_own_action`, with the first layer's common product computed once:

        W x_i + b = (W x + b) + W_i (own_i - a_i)      W_i: the columns of agent i's action
        """
        first, *later = cast(list[HiddenLayer], list(network.hidden))
        taken = codes[self.group_name]
        n, size, before = *taken.shape[-2:], self.reads.index(self.group_name)
        start = encoded.shape[-1] + sum(codes[name].shape[-2:].numel() for name in self.reads[:before])
        columns = first.linear.weight[..., start : start + n * size].unflatten(-1, (n, size))
        common = first.linear(torch.cat((encoded, *(codes[name].flatten(-2) for name in self.reads)), dim=-1))
        changes = torch.einsum("...bac,...uac->...abu", own - taken, columns)  # b: of a sample
        x = first.activate(common.unsqueeze(-3) + changes)
        for layer in later:
            x = layer(x)
        return network.head(x).diagonal(dim1=-3, dim2=-1)

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
    return InputSpec((*joint_input_spec(env).parts, *actions))


def own_first(group: GroupSpec, env: EnvSpec) -> Tensor:
    """Columns of the joint vector, in an order of its own for each agent of the group, `[agent, feature]`.

    Agent i has the group's observations and actions in the order i, i + 1, ..., n - 1, 0, ..., i - 1; the rest stays.
    """
    blocks = [(other.name, other.n_agents, prod(other.observation.shape)) for other in env.groups]
    blocks += [] if env.state_shape is None else [("", 1, prod(env.state_shape))]
    blocks += [(other.name, other.n_agents, ActionEncoder(other.action).size) for other in env.groups]
    columns = torch.arange(sum(n * size for _, n, size in blocks)).split([n * size for _, n, size in blocks])

    def beginning_with(agent: int) -> Tensor:
        turns = (-agent if name == group.name else 0 for name, _, _ in blocks)
        parts = (part.view(n, size).roll(turn, 0) for part, (_, n, size), turn in zip(columns, blocks, turns))
        return torch.cat([part.flatten() for part in parts])

    return torch.stack([beginning_with(agent) for agent in range(group.n_agents)])


def _one_hot(index: Tensor, n: int) -> Tensor:
    return (index.unsqueeze(-1) == torch.arange(n, device=index.device)).float()

"""QCritic: what a group's actions are worth, judged from each agent's own view or from everyone's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.errors import ShapeError
from marlnb.models.networks.layers import HiddenLayer
from marlnb.models.networks.mlp import MLP
from marlnb.models.policies.actor import features
from marlnb.models.policies.critic import joint_inputs
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, InputSpec


class ActionCode(nn.Module):
    """An action as a critic reads it, `[..., code]`: one-hot for each choice, or each component scaled to -1..1."""

    low: Tensor
    scale: Tensor

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.spec, self.size = spec, spec.n_components if spec.kind == "continuous" else spec.n_logits
        low, high = torch.tensor(spec.low), torch.tensor(spec.high)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("scale", (high - low) / 2, persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Codes of actions `[...]` (discrete) or `[..., component]`."""
        if self.spec.kind == "continuous":
            return (action - self.low) / self.scale - 1
        chosen = action.unsqueeze(-1) if self.spec.kind == "discrete" else action
        return torch.cat([_one_hot(part, n) for part, n in zip(chosen.unbind(-1), self.spec.n)], dim=-1)

    def action(self, code: Tensor) -> Tensor:
        """The action that a continuous code stands for, in the environment's units."""
        return (code + 1) * self.scale + self.low


class QCritic(nn.Module):
    """Q values of the actions taken, `[..., agent]`, or of each choice that an agent has, `[..., agent, choice]`.

    Decentralised: each agent from its own observation and action. Centralised: from every agent's observation, agent
    by agent in the environment's order, the state where there is one, then every agent's action.
    Of the actions taken: with shared weights the joint vector goes once through one network, whose head has a unit for
    each agent's value, so the sites have an agent axis of 1; unshared, each agent has a network of its own. Each own
    choice: the network of an agent, shared or not, reads the joint vector with the agent's own action left blank, and
    its head has a unit for each choice, as in COMA (Foerster et al. 2018, section 4, arXiv:1705.08926).

    Args:
        each_choice: judge every choice of a discrete action at once, rather than the one taken.
    """

    _own: Tensor

    def __init__(
        self, group: GroupSpec, env: EnvSpec, config: ModelConfig, *, centralised: bool, each_choice: bool = False
    ) -> None:
        super().__init__()
        self.group_name, self.n_agents, self.centralised = group.name, group.n_agents, centralised
        self.each_choice = each_choice
        read = env.groups if centralised else (group,)
        self.axes = {other.name: len(other.observation.shape) for other in read}
        self.codes = nn.ModuleDict({other.name: ActionCode(other.action) for other in read})
        self.reads = tuple(self.axes)
        self.state_axes = len(env.state_shape or ())
        self.reads_state = centralised and env.state_shape is not None
        self.shared_forward = centralised and config.share_parameters and not each_choice
        heads = group.action.n_logits if each_choice else 1
        inputs = judged_inputs(env) if centralised else _own_inputs(group, each_choice)
        if self.shared_forward:
            self.network = config.build(1, inputs, group.n_agents)
        else:
            self.network = config.build(group.n_agents, inputs, heads)
        self.register_buffer("_own", torch.eye(group.n_agents, dtype=torch.bool).unsqueeze(-1), persistent=False)

    def code(self, group: str, action: Tensor) -> Tensor:
        """What the critic reads of a group's actions, `[..., agent, code]`."""
        code: Tensor = self.codes[group](action)
        return code

    def action(self, group: str, code: Tensor) -> Tensor:
        """The continuous actions that `code` reads so, in the environment's units."""
        return cast(ActionCode, self.codes[group]).action(code)

    def seen(self, observations: Mapping[str, Tensor], state: Tensor | None = None) -> Tensor:
        """All but the actions: decentralised `[..., agent, feature]`, centralised `[..., feature]`.

        Raises:
            ShapeError: the environment has a state, and none was given.
        """
        if not self.centralised:
            return features(observations[self.group_name], self.axes[self.group_name])
        parts = [features(observations[name], axes).flatten(-2) for name, axes in self.axes.items()]
        if self.reads_state:
            if state is None:
                raise ShapeError(
                    f"the centralised critic of {self.group_name!r} needs the environment's state; got None"
                )
            parts.append(features(state, self.state_axes))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def forward(self, seen: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        """Q of the actions taken, `[..., agent]`; of each own choice given the others' actions, `[..., agent, choice]`.

        Args:
            codes: by group, `[..., agent, code]`; a decentralised critic of each choice reads none.
        """
        if self.each_choice:
            output: Tensor = self.network(self._blanked(seen, codes) if self.centralised else seen)[0]
            return output
        if not self.centralised:
            values: Tensor = self.network(torch.cat((seen, codes[self.group_name]), dim=-1))[0].squeeze(-1)
            return values
        joint = torch.cat((seen, *(codes[name].flatten(-2) for name in self.reads)), dim=-1).unsqueeze(-2)
        if self.shared_forward:
            output = self.network(joint)[0]
            return output.squeeze(-2)
        output = self.network(joint.expand(*joint.shape[:-2], self.n_agents, joint.shape[-1]))[0]
        return output.squeeze(-1)

    def judge_own(self, seen: Tensor, codes: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """Q `[..., agent]` of each agent with its own action `own` `[..., agent, code]`, the others' as in `codes`.

        Source: Lowe et al. 2017, equation 6 (arXiv:1706.02275).
        """
        if not self.centralised or self.n_agents == 1:
            return self.forward(seen, {**codes, self.group_name: own})
        if self.shared_forward and isinstance(self.network, MLP) and len(self.network.hidden):
            return self._judge_changes(self.network, seen, codes, own)
        rows = self._rows(seen, codes, own)
        if not self.shared_forward:
            output: Tensor = self.network(rows)[0]
            return output.squeeze(-1)
        output = self.network(rows.unsqueeze(-2))[0].squeeze(-2)
        return output.diagonal(dim1=-2, dim2=-1)

    def _judge_changes(self, network: MLP, seen: Tensor, codes: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """As `judge_own`: the first layer's products are the same for every agent but for its own action's columns."""
        first, *later = cast(list[HiddenLayer], list(network.hidden))
        taken = codes[self.group_name]
        n, size, before = *taken.shape[-2:], self.reads.index(self.group_name)
        start = seen.shape[-1] + sum(codes[name].shape[-2:].numel() for name in self.reads[:before])
        columns = first.linear.weight[:, start : start + n * size].unflatten(-1, (n, size))
        common = first.linear(torch.cat((seen, *(codes[name].flatten(-2) for name in self.reads)), dim=-1))
        changes = torch.einsum("...ac,uac->a...u", own - taken, columns)
        x = first.activate(common + changes)
        for layer in later:
            x = layer(x)
        return network.head(x).diagonal(dim1=0, dim2=-1)

    def _blanked(self, seen: Tensor, codes: Mapping[str, Tensor]) -> Tensor:
        return self._rows(seen, codes, torch.zeros_like(codes[self.group_name]))

    def _rows(self, seen: Tensor, codes: Mapping[str, Tensor], own: Tensor) -> Tensor:
        """The joint vector once for each agent `[..., agent, feature]`, the agent's own action replaced by `own`."""
        lead, n = seen.shape[:-1], self.n_agents
        parts = [seen.unsqueeze(-2).expand(*lead, n, seen.shape[-1])]
        for name in self.reads:
            code = codes[name]
            if name == self.group_name:
                parts.append(torch.where(self._own, own.unsqueeze(-3), code.unsqueeze(-3)).flatten(-2))
            else:
                parts.append(code.flatten(-2).unsqueeze(-2).expand(*lead, n, code.shape[-2] * code.shape[-1]))
        return torch.cat(parts, dim=-1)


def judged_inputs(env: EnvSpec) -> InputSpec:
    """Every agent's observation, the state where there is one, then every agent's action."""
    actions = [(ActionCode(group.action).size,) for group in env.groups for _ in group.agents]
    return InputSpec((*joint_inputs(env).parts, *actions))


def _own_inputs(group: GroupSpec, each_choice: bool) -> InputSpec:
    own = group.observation.shape
    return InputSpec((own,) if each_choice else (own, (ActionCode(group.action).size,)))


def _one_hot(index: Tensor, n: int) -> Tensor:
    return (index.unsqueeze(-1) == torch.arange(n, device=index.device)).float()

"""ExternalSoftCritic: Q networks of other libraries for all discrete actions at once, as in discrete SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from marlnb.errors import ConfigError
from marlnb.models.adapters.critic import Reads, flat, joint_input
from marlnb.models.adapters.q_critic import ActionCritic
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.specs import EnvSpec, GroupSpec

MIN_LOG_PROB = float(torch.log(torch.tensor(1e-8)))


class ExternalSoftCritic(ActionCritic):
    """Q networks of all actions: `V = sum_a pi(a) (min_k Q_k(a) - alpha log pi(a))`.

    Args:
        group: the group whose actions it evaluates.
        networks: the output is one agent's Q values, or those of all agents, concatenated as `agent * action`.
        env: the environment.
        reads: what the networks read.
        alpha: weight of the policy's entropy in the value, in units of reward.
        reads_other_actions: each row starts with the other agents' most likely actions, one-hot.
    Raises:
        ConfigError: the input or output has another size, or the actions are not discrete.
    """

    def __init__(
        self,
        group: GroupSpec,
        networks: Sequence[Network],
        env: EnvSpec,
        reads: Reads,
        *,
        alpha: float,
        reads_other_actions: bool = False,
    ) -> None:
        if group.action.kind != "discrete":
            raise ConfigError(
                f"a critic of all actions needs discrete actions; {group.name!r} has {group.action.kind} actions"
            )
        n, n_actions, n_outputs = group.n_agents, group.action.n[0], networks[0].out_features
        others = n_actions * (n - 1) if reads_other_actions else 0
        super().__init__(group, networks, env, reads, per_agent=0, joint=others)
        self.alpha, self.reads_other_actions, self.n_actions = alpha, reads_other_actions, n_actions
        self.coupled = n_outputs == n_actions * n != n_actions
        if not self.coupled and n_outputs != n_actions:
            raise ConfigError(
                f"the critic of {group.name!r} has {n_outputs} outputs; {n} agents have {n_actions} actions each"
            )

    def forward(self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor) -> Tensor:
        """Each network's Q values of all actions, `[network, ..., agent, action]`.

        Args:
            observations: by group, `[..., agent, *shape]`.
            state: `[..., *state_shape]` if the environment has a state.
            logits: the policies' logits, `[..., agent, action]`.
        """
        inputs = self._inputs(observations, state, logits)
        values = torch.stack([network(inputs)[0] for network in self.networks])
        if self.coupled:
            return values[..., 0, :].unflatten(-1, (self.group.n_agents, self.n_actions))
        return values.expand(*values.shape[:-2], self.group.n_agents, -1)

    def estimate(
        self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor, distribution: ActionDistribution
    ) -> Tensor:
        """Values `[..., agent]`: V = sum_a pi(a) (min_k Q_k(a) - alpha log pi(a)).

        Source: torchrl.objectives.DiscreteSACLoss (Christodoulou 2019, equation 5, arXiv:1910.07207).
        """
        log_probs = F.log_softmax(logits, dim=-1)
        probs = log_probs.exp()
        q = self(observations, state, logits).amin(0)
        return (probs * (q - self.alpha * log_probs.clamp(min=MIN_LOG_PROB))).sum(-1)

    def _inputs(self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor) -> Tensor:
        """`[..., row, feature]`, one row per agent, or one for all agents."""
        if self.reads == "observation":
            return flat(observations[self.group.name], self.group)
        joint = joint_input(self.group, self.env, self.reads, observations, state)
        rows = joint.unsqueeze(-2).expand(*joint.shape[:-1], self.networks[0].n_agents, -1)
        return torch.cat((self._other_actions(logits), rows), dim=-1) if self.reads_other_actions else rows

    def _other_actions(self, logits: Tensor) -> Tensor:
        """The other agents' most likely actions of each agent, one-hot: `[..., agent, (agent - 1) * action]`."""
        n = self.group.n_agents
        one_hot = F.one_hot(logits.argmax(-1), self.n_actions).to(logits.dtype)
        others = [torch.arange(n)[torch.arange(n) != agent] for agent in range(n)]
        return torch.stack([one_hot[..., indices, :].flatten(-2) for indices in others], dim=-2)

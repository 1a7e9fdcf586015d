"""ForeignSoftCritic: critics from elsewhere that judge every discrete action at once, as those of discrete SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.errors import ConfigError
from marlnb.models.adapters.policy import Reads, flat, joint, network_is_central, whole_state
from marlnb.models.adapters.q_critic import sites_of_each
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.specs import EnvSpec, GroupSpec


class ForeignSoftCritic(nn.Module):
    """Twin networks that judge all of an agent's actions; what the policy expects of the smaller Q is the value.

    Args:
        networks: their outputs are an agent's Q values, or those of all agents side by side, `agent * action`.
        reads: observation, each agent's (a centralised network reads those of all agents in a row); joint, all agents'
            observations in a row; or the environment's state.
        alpha: weight of the policy's entropy in the value, in reward.
        heeds_others: each row begins with what the other agents would do: their likeliest actions, one-hot.
    Raises:
        ConfigError: what it reads or says is of another size, or actions are not one choice each.
    """

    def __init__(
        self,
        group: GroupSpec,
        networks: Sequence[Network],
        env: EnvSpec,
        reads: Reads,
        *,
        alpha: float,
        heeds_others: bool = False,
    ) -> None:
        super().__init__()
        if group.action.kind != "discrete":
            raise ConfigError(
                f"a critic of SAC that judges every action needs one discrete choice; {group.name!r} has "
                f"{group.action.kind} actions"
            )
        self.group, self.env, self.reads, self.alpha = group, env, reads, alpha
        self.heeds_others, self.n_actions = heeds_others, int(group.action.n[0])
        self.networks = nn.ModuleList(networks)
        first = networks[0]
        self.shared_forward = first.n_agents == 1 < group.n_agents
        self.coupled = first.out_features == self.n_actions * group.n_agents != self.n_actions
        self._check(first)

    def forward(self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor) -> Tensor:
        """Each network's Q values of all actions, `[network, ..., agent, action]`.

        Args:
            logits: the policies', `[..., agent, action]`.
        """
        read = self._inputs(observations, state, logits)
        values = torch.stack([network(read)[0] for network in self._networks])
        if self.coupled:
            return values[..., 0, :].unflatten(-1, (self.group.n_agents, self.n_actions))
        return values.expand(*values.shape[:-2], self.group.n_agents, -1)

    def estimate(
        self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor, distribution: ActionDistribution
    ) -> Tensor:
        """Values `[..., agent]`: what the policy expects of the smallest Q less `alpha` log-probabilities.

        Source: torchrl.objectives.DiscreteSACLoss (Christodoulou 2019, equation 5, arXiv:1910.07207).
        """
        log_probs = F.log_softmax(logits, dim=-1)
        probs = log_probs.exp()
        q = self(observations, state, logits).amin(0)
        return (probs * (q - self.alpha * log_probs.clamp(min=_LEAST))).sum(-1)

    def sites(self) -> list[Site]:
        return sites_of_each(self._networks, self.group, shared_forward=self.shared_forward)

    def _inputs(self, observations: Mapping[str, Tensor], state: Tensor | None, logits: Tensor) -> Tensor:
        """`[..., row, feature]`, a row for each agent, or one for all."""
        if self.reads == "observation":
            return flat(observations[self.group.name], self.group)
        seen = whole_state(self.group, self.env, state) if self.reads == "state" else joint(self.env, observations)
        rows = seen.unsqueeze(-2).expand(*seen.shape[:-1], self._networks[0].n_agents, -1)
        return torch.cat((self._others(logits), rows), dim=-1) if self.heeds_others else rows

    def _others(self, logits: Tensor) -> Tensor:
        """For each agent the others' likeliest actions, one-hot in a row: `[..., agent, (agent - 1) * action]`."""
        n = self.group.n_agents
        taken = F.one_hot(logits.argmax(-1), self.n_actions).to(logits.dtype)
        others = [torch.arange(n)[torch.arange(n) != agent] for agent in range(n)]
        return torch.stack([taken[..., indices, :].flatten(-2) for indices in others], dim=-2)

    def _check(self, first: Network) -> None:
        group, n = self.group, self.group.n_agents
        central = n if self.reads == "observation" and network_is_central(first) else 1
        size = {
            "observation": group.observation.size * central,
            "joint": sum(member.n_agents * member.observation.size for member in self.env.groups),
            "state": 0 if self.env.state_shape is None else int(torch.Size(self.env.state_shape).numel()),
        }[self.reads] + (self.n_actions * (n - 1) if self.heeds_others else 0)
        if size != first.in_features:
            raise ConfigError(
                f"the critic of {group.name!r} reads {first.in_features} features; the {self.reads} in "
                f"{self.env.name}: {size}"
            )
        if not self.coupled and first.out_features != self.n_actions:
            raise ConfigError(
                f"the critic of {group.name!r} says {first.out_features} numbers; {n} agents have {self.n_actions} "
                "actions each"
            )

    @property
    def _networks(self) -> Sequence[Network]:
        return cast(Sequence[Network], self.networks)


_LEAST = float(torch.log(torch.tensor(1e-8)))

"""DeterministicPolicy: the policy of IDDPG, MADDPG and MATD3. An actor that names one action, and its critics."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.models.policies.actor import Actor
from marlnb.models.policies.distributions import Deterministic
from marlnb.models.policies.policy import ActorOutput
from marlnb.models.policies.q_actor_critic import QActorCritic
from marlnb.specs import EnvSpec, GroupSpec


class DeterministicPolicy(QActorCritic):
    """An actor that names one action, and one critic or two that judge it.

    Continuous actions are the tanh of the actor's output, scaled to the bounds; exploring adds normal noise of
    deviation `noise` (bounds scaled to -1..1) and clips. Discrete ones are the largest logit; exploring adds Gumbel
    noise to the logits, which draws from their softmax. There is no density: log-probabilities are zero for continuous
    actions, and the softmax's for discrete ones.
    """

    noise: Tensor

    def __init__(
        self, group: GroupSpec, env: EnvSpec, actor: ModelConfig, critic: ModelConfig, *, centralised: bool, twins: bool
    ) -> None:
        spec = group.action
        self.continuous = spec.kind == "continuous"
        named = Deterministic(spec.low, spec.high) if spec.kind == "continuous" else None
        super().__init__(
            group,
            env,
            Actor(group, actor, distribution=named),
            critic,
            centralised=centralised,
            twins=twins,
            each_choice=False,
        )
        self.register_buffer("noise", torch.zeros(()))

    @torch.no_grad()
    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        distribution = self.actor.distribution
        parameters = distribution.mask(self.actor(observation), action_mask)
        if not explore:
            chosen = distribution.mode(parameters)
            return ActorOutput(chosen.action, chosen.log_prob, parameters)
        if self.continuous:
            code = self._explore(parameters, generator)
            return ActorOutput(self.action_of(code), parameters.new_zeros(parameters.shape[:-1]), parameters)
        even = distribution.mask(torch.zeros_like(parameters), action_mask)
        chosen = distribution.sample(even if self.uniform else parameters, generator)
        return ActorOutput(chosen.action, chosen.log_prob, parameters)

    def greedy_code(self, parameters: Tensor) -> Tensor:
        if self.continuous:
            return parameters.tanh()
        return self.critic.code(self.group.name, self.actor.distribution.mode(parameters).action)

    def code(self, parameters: Tensor, temperature: float) -> Tensor:
        """The action as critics read it, `[..., agent, code]`, through which the actor learns.

        Continuous: without noise. Discrete: a draw of the Gumbel-softmax, one-hot ahead and soft behind.
        """
        if self.continuous:
            return parameters.tanh()
        return straight_through(parameters, self.group.action.n, temperature)

    def action_of(self, code: Tensor) -> Tensor:
        """Continuous actions in the environment's units, of what critics read of them."""
        return self.critic.action(self.group.name, code)

    def _explore(self, parameters: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.uniform:
            return torch.empty_like(parameters).uniform_(-1, 1, generator=generator)
        noise = torch.randn(parameters.shape, device=parameters.device, generator=generator)
        return torch.addcmul(parameters.tanh(), noise, self.noise).clamp_(-1, 1)


def straight_through(logits: Tensor, n: tuple[int, ...], temperature: float) -> Tensor:
    """One-hot draws from the softmax of logits `[..., choice]`, split into components of n[k] choices each.

    The gradient is that of the softmax of (logits + Gumbel noise) / temperature.
    Source: Jang et al. 2017, section 2.2 (arXiv:1611.01144).
    """
    noisy = (logits - torch.empty_like(logits).exponential_().log_()) / temperature
    parts = []
    for scores in noisy.split(n, dim=-1):
        soft = scores.softmax(-1)
        hard = torch.zeros_like(soft).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        parts.append(hard + (soft - soft.detach()))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

"""QPolicy: the policy of IQL, VDN and QMIX. A network of Q values, acted on greedily but for a share of random actions.

`policy.actor` maps observations to Q values, one for each choice, so that attribution explains them as it does logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from marlnb.config import ModelConfig
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.mixers import Mixer
from marlnb.models.policies.actor import Actor, ActorPolicy
from marlnb.models.policies.policy import ActorOutput
from marlnb.specs import GroupSpec


class QPolicy(ActorPolicy):
    """Each agent's Q values, and a mixer of them where the group is taught as one.

    Attributes:
        epsilon: `[]`, the share of exploring actions that are drawn evenly from those allowed; the learner sets it.
        value_scale, value_shift: `[]`, what the network or the mixer says times the scale, plus the shift, is the value
            in units of reward; 1 and 0 until the learner sets them.
    """

    greedy = True
    epsilon: Tensor
    value_scale: Tensor
    value_shift: Tensor

    def __init__(self, group: GroupSpec, config: ModelConfig, mixer: Mixer | None = None) -> None:
        super().__init__()
        self.group = group
        self.actor = Actor(group, config, squash="tanh", std_of="parameter", initial_log_std=0.0)
        self.mixer = mixer
        self.recurrent_shape = self.critic_recurrent_shape = self.actor.network.recurrent_shape
        self.register_buffer("epsilon", torch.ones(()))
        self.register_buffer("value_scale", torch.ones(()))
        self.register_buffer("value_shift", torch.zeros(()))

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
        """Its `logits` are Q values, lowest for forbidden choices."""
        q, after = self.actor.step(observation, recurrent)
        q = self.actor.distribution.mask(q, action_mask)
        greedy = q.argmax(-1)
        if not explore:
            return ActorOutput(greedy, torch.zeros_like(q[..., 0]), q, after)
        drawn = torch.rand((2, *q.shape), device=q.device, generator=generator)
        lots = drawn[0] if action_mask is None else drawn[0].masked_fill_(~action_mask, -1.0)
        action = torch.where(drawn[1, ..., 0] < self.epsilon, lots.argmax(-1), greedy)
        allowed = q.shape[-1] if action_mask is None else action_mask.sum(-1).clamp_min_(1)
        log_prob = (self.epsilon / allowed + (1 - self.epsilon) * (action == greedy)).log()
        return ActorOutput(action, log_prob, q, after)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The largest Q of each agent; with a mixer that of the group at those, the same for all its agents.

        In units of reward. An action mask is no argument here: the largest is taken over all choices.
        """
        q, after = self.actor.step(observations[self.group.name], recurrent)
        best = q.amax(-1)
        if self.mixer is None:
            return self.in_rewards(best), after
        total = self.in_rewards(self.mixer(best, self.mixer.inputs(observations, state)))
        return total.unsqueeze(-1).expand_as(best), after

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *how: Any) -> None:
        """Weights from before there were scale and shift are taken with 1 and 0: they learnt values in reward."""
        keys = {f"{prefix}value_scale": torch.ones(()), f"{prefix}value_shift": torch.zeros(())}
        if not any(key in state_dict for key in keys):
            state_dict.update(keys)
        super()._load_from_state_dict(state_dict, prefix, *how)

    def in_rewards(self, value: Tensor) -> Tensor:
        """In units of reward, what the network or the mixer says."""
        return torch.addcmul(self.value_shift, value, self.value_scale)

    @property
    def has_critic(self) -> bool:
        return True

    def sites(self) -> list[Site]:
        return [*super().sites(), *([] if self.mixer is None else self.mixer.sites())]

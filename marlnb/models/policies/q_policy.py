"""QPolicy: the policy of IQL, VDN and QMIX. A network of Q values, acted on epsilon-greedily.

`policy.actor` maps observations to Q values, one for each choice, so that attribution explains them like logits.
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
from marlnb.models.policies.policy import ActContext, ActorOutput, Reads
from marlnb.specs import GroupSpec


class QPolicy(ActorPolicy):
    """Each agent's Q values, and a mixer of them where the group is trained as a team.

    Attributes:
        mixer: combines the agents' Q values; None for independent learners.
        epsilon: `[]`, the share of exploring actions that are uniform over the allowed choices; the learner sets it.
        value_scale: `[]`, the output of the network or the mixer times `value_scale` plus `value_shift` is in units of
            reward; 1 until the learner sets it.
        value_shift: `[]`, 0 until the learner sets it.
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
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        """The output's `logits` are Q values, lowest for forbidden choices."""
        q, recurrent = self.actor.step(observation, context.recurrent)
        q = self.actor.distribution.mask(q, context.action_mask)
        greedy = q.argmax(-1)
        if not context.explore:
            return ActorOutput(greedy, torch.zeros_like(q[..., 0]), q, recurrent)
        action_mask = context.action_mask
        drawn = torch.rand((2, *q.shape), device=q.device, generator=context.generator)
        scores = drawn[0] if action_mask is None else drawn[0].masked_fill_(~action_mask, -1.0)
        action = torch.where(drawn[1, ..., 0] < self.epsilon, scores.argmax(-1), greedy)
        n_allowed = q.shape[-1] if action_mask is None else action_mask.sum(-1).clamp_min_(1)
        log_prob = (self.epsilon / n_allowed + (1 - self.epsilon) * (action == greedy)).log()
        return ActorOutput(action, log_prob, q, recurrent)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The largest Q of each agent, in units of reward; with a mixer the team's Q at these, equal for all agents.

        There is no action mask here: the maximum is over all choices.
        """
        q, after = self.actor.step(observations[self.group.name], recurrent)
        best = q.amax(-1)
        if self.mixer is None:
            return self.to_reward_units(best), after
        total = self.to_reward_units(self.mixer(best, self.mixer.inputs(observations, state)))
        return total.unsqueeze(-1).expand_as(best), after

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Loads old weights without scale and shift as 1 and 0: they learned values in units of reward."""
        defaults = {f"{prefix}value_scale": torch.ones(()), f"{prefix}value_shift": torch.zeros(())}
        if not any(key in state_dict for key in defaults):
            state_dict.update(defaults)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def to_reward_units(self, value: Tensor) -> Tensor:
        """Converts an output of the network or the mixer to units of reward."""
        return torch.addcmul(self.value_shift, value, self.value_scale)

    @property
    def has_critic(self) -> bool:
        return True

    @property
    def critic_reads(self) -> Reads:
        return "all" if self.mixer is not None else self.reads(critic=False)

    def sites(self) -> list[Site]:
        return [*super().sites(), *([] if self.mixer is None else self.mixer.sites())]

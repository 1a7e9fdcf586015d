"""Policies that nobody trained: the baselines that a score is read against."""

from __future__ import annotations

import torch
from torch import Tensor

from marlnb.models.policy import ActorOutput, Policy
from marlnb.specs import GroupSpec


class RandomPolicy(Policy):
    """Uniform over the allowed choices, or over the box of a continuous action; it draws whether exploring or not."""

    low: Tensor
    high: Tensor

    def __init__(self, group: GroupSpec) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("low", torch.tensor(group.action.low), persistent=False)
        self.register_buffer("high", torch.tensor(group.action.high), persistent=False)

    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        action = self.group.action
        shape = (*observation.shape[:1], self.group.n_agents)
        if action.kind == "continuous":
            low, high = self.low, self.high
            unit = torch.rand(*shape, action.n_components, generator=generator, device=observation.device)
            log_prob = -torch.log(high - low).sum().expand(shape)
            return ActorOutput(low + unit * (high - low), log_prob, torch.zeros(*shape, 0, device=observation.device))
        everything = torch.ones(*shape, action.n_logits, dtype=torch.bool, device=observation.device)
        allowed = everything if action_mask is None else action_mask
        noise = torch.rand(allowed.shape, generator=generator, device=observation.device).masked_fill_(~allowed, -1.0)
        parts, log_prob = [], torch.zeros(shape, device=observation.device)
        for scores, choices in zip(noise.split(action.n, -1), allowed.split(action.n, -1)):
            parts.append(scores.argmax(-1))
            log_prob -= choices.sum(-1).clamp(min=1).log()
        chosen = parts[0] if action.kind == "discrete" else torch.stack(parts, -1)
        logits = torch.zeros(allowed.shape, device=observation.device).masked_fill_(~allowed, -torch.inf)
        return ActorOutput(chosen, log_prob, logits)

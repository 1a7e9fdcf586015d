"""What the agents of several trainings act with, in one batched product."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from marlnb.models.policies.actor import Actor
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.specs import GroupSpec


class StackedPolicy(Policy):
    """Acts in environments that are sorted by training, the same number of each.

    Args:
        group: the agents and their spaces.
        actor: the trainings' feed-forward actors as one (`marlnb.models.networks.stacking.stack`).
        generators: of each training's actions, so that it explores as it would by itself.
    """

    def __init__(self, group: GroupSpec, actor: Actor, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.group, self.actor, self._generators = group, actor, list(generators)

    @torch.no_grad()
    def choose(self, observation: torch.Tensor, context: ActContext) -> ActorOutput:
        distribution = self.actor.distribution
        output = self.actor(observation.unflatten(0, (len(self._generators), -1)))
        parameters = distribution.mask(output.flatten(0, 1), context.action_mask)
        sample = distribution.choose(parameters, self._generators, explore=context.explore)
        extras = {} if sample.stored is sample.action else {distribution.stored_as: sample.stored}
        return ActorOutput(sample.action, sample.log_prob, parameters, None, extras)


class StackedDeterministicPolicy(Policy):
    """Acts as StackedPolicy does, and explores with the trainings' own policies, which have their noise.

    Args:
        actor: the trainings' actors as one.
        policies: of the trainings.
        generators: of each training's actions.
    """

    def __init__(
        self, actor: Actor, policies: Sequence[DeterministicPolicy], generators: Sequence[torch.Generator]
    ) -> None:
        super().__init__()
        self.group, self.actor = policies[0].group, actor
        self._of_trainings = list(zip(policies, generators, strict=True))

    @torch.no_grad()
    def choose(self, observation: torch.Tensor, context: ActContext) -> ActorOutput:
        n, first = len(self._of_trainings), self._of_trainings[0][0]
        outputs = self.actor(observation.unflatten(0, (n, -1)))
        if first.continuous and context.explore and not any(policy.uniform for policy, _ in self._of_trainings):
            each = zip(self._of_trainings, outputs)
            noise = [policy.action_noise(output, generator) for (policy, generator), output in each]
            parameters = outputs.flatten(0, 1)
            return first.output_of((parameters.tanh() + torch.cat(noise)).clamp_(-1, 1), parameters)
        masks = (None,) * n if context.action_mask is None else context.action_mask.chunk(n)
        chosen = [
            policy.choose_from(output, context._replace(action_mask=mask, generator=generator))
            for (policy, generator), output, mask in zip(self._of_trainings, outputs, masks)
        ]
        action, log_prob, logits = (torch.cat(parts) for parts in zip(*(output[:3] for output in chosen)))
        return ActorOutput(action, log_prob, logits)

    def begin_episodes(self, done: torch.Tensor) -> None:
        for (policy, _), of_one in zip(self._of_trainings, done.chunk(len(self._of_trainings))):
            policy.begin_episodes(of_one)

"""StackedPolicy: what the agents of several trainings act with, in one batched product."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from marlnb.models.policies.actor import Actor
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

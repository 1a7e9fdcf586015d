"""What the agents of several training runs act with, in one batched product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from marlnb.models.policies.actor import Actor
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.specs import GroupSpec


class StackedPolicy(Policy):
    """Acts in environments that are sorted by training, the same number of each.

    Args:
        group: the agents and their spaces.
        actor: the training runs' feed-forward actors as one (`marlnb.models.networks.stacking.stack`).
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
    """Acts as StackedPolicy does, and explores with the training runs' own policies, which have their noise.

    Args:
        actor: the training runs' actors as one.
        policies: of the training runs.
        generators: of each training's actions.
    """

    def __init__(
        self, actor: Actor, policies: Sequence[DeterministicPolicy], generators: Sequence[torch.Generator]
    ) -> None:
        super().__init__()
        self.group, self.actor = policies[0].group, actor
        self._of_trainings = list(zip(policies, generators, strict=True))
        self._scale = torch.stack([policy.noise for policy in policies])[:, None, None, None]
        for policy, row in zip(policies, self._scale):
            policy.noise = row.view(())  # what changes it changes the scale
        self._noise_states = torch.empty(0)  # of all, `[training, env, agent, component]`
        self._rows = self._noise_states.unbind()  # its rows, which the training runs' policies have as theirs

    @torch.no_grad()
    def choose(self, observation: torch.Tensor, context: ActContext) -> ActorOutput:
        n, first = len(self._of_trainings), self._of_trainings[0][0]
        outputs = self.actor(observation.unflatten(0, (n, -1)))
        if first.continuous and context.explore and not any(policy.uniform for policy, _ in self._of_trainings):
            code = (outputs.tanh() + self._noise(outputs)).clamp_(-1, 1)
            return first.output_of(code.flatten(0, 1), outputs.flatten(0, 1))
        masks = (None,) * n if context.action_mask is None else context.action_mask.chunk(n)
        chosen = [
            policy.choose_from(output, context._replace(action_mask=mask, generator=generator))
            for (policy, generator), output, mask in zip(self._of_trainings, outputs, masks)
        ]
        action, log_prob, logits = (torch.cat(parts) for parts in zip(*(output[:3] for output in chosen)))
        return ActorOutput(action, log_prob, logits)

    def _noise(self, outputs: torch.Tensor) -> torch.Tensor:
        """As `DeterministicPolicy.action_noise` of each run, in one tensor like the outputs `[training, ...]`."""
        policies = [policy for policy, _ in self._of_trainings]
        noise = torch.empty(outputs.shape, device=outputs.device)  # in rows, whatever the strides of the outputs
        for of_one, (_, generator) in zip(noise.unbind(), self._of_trainings):
            of_one.normal_(generator=generator)
        if policies[0].process is None:
            return noise.mul_(self._scale)
        theta, dt = policies[0].process
        noise.mul_(self._scale * dt**0.5)
        return self._states_of(policies, outputs).mul_(1 - theta * dt).add_(noise)

    def _states_of(self, policies: Sequence[DeterministicPolicy], outputs: torch.Tensor) -> torch.Tensor:
        """The training runs' noise states as one tensor; their own become views of it."""
        if not self._rows or any(policy.noise_state is not row for policy, row in zip(policies, self._rows)):
            zeros = torch.zeros_like(outputs[0])
            states = [policy.noise_state for policy in policies]
            self._noise_states = torch.stack([zeros if s is None or s.shape != zeros.shape else s for s in states])
            self._rows = self._noise_states.unbind()
            for policy, row in zip(policies, self._rows):
                policy.noise_state = row
        return self._noise_states

    def begin_episodes(self, done: torch.Tensor) -> None:
        for (policy, _), of_one in zip(self._of_trainings, done.chunk(len(self._of_trainings))):
            policy.begin_episodes(of_one)


class SideBySidePolicy(Policy):
    """Several policies of one group of agents, which act in environments that are sorted by policy.

    Args:
        policies: feed-forward ones.
        sizes: how many environments each of them has.
    """

    def __init__(self, policies: Sequence[Policy], sizes: Sequence[int]) -> None:
        super().__init__()
        self.group, self.policies, self._sizes = policies[0].group, nn.ModuleList(policies), list(sizes)

    @torch.no_grad()
    def choose(self, observation: torch.Tensor, context: ActContext) -> ActorOutput:
        mask = context.action_mask
        masks = [None] * len(self._sizes) if mask is None else mask.split(self._sizes)
        outputs = [
            cast(Policy, policy).choose(part, context._replace(action_mask=mask))
            for policy, part, mask in zip(self.policies, observation.split(self._sizes), masks)
        ]
        action, log_prob, logits = (torch.cat(parts) for parts in zip(*(output[:3] for output in outputs)))
        extras = {name: torch.cat([output.extras[name] for output in outputs]) for name in outputs[0].extras}
        return ActorOutput(action, log_prob, logits, None, extras)

    def begin_episodes(self, done: torch.Tensor) -> None:
        for policy, of_one in zip(self.policies, done.split(self._sizes)):
            cast(Policy, policy).begin_episodes(of_one)


def side_by_side(policies: Sequence[Policy], sizes: Sequence[int]) -> Policy:
    """One policy for all environments: `SideBySidePolicy`, or the only one itself."""
    return policies[0] if len(policies) == 1 else SideBySidePolicy(policies, sizes)

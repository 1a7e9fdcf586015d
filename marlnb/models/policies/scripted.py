"""Policies without training: random, no-op, a user's function; and the frozen actor of a policy trained elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from marlnb.errors import CheckpointError, ConfigError, MarlnbError, ShapeError
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy, policies_within
from marlnb.plugins import user_code
from marlnb.specs import GroupSpec

ActionFunction = Callable[[Tensor, Tensor | None, GroupSpec, torch.Generator | None], Tensor]


class RandomPolicy(Policy):
    """Uniform over the allowed choices, or over the box of a continuous action, whether exploring or not."""

    low: Tensor
    high: Tensor

    def __init__(self, group: GroupSpec) -> None:
        super().__init__()
        self.group = group
        self.register_buffer("low", torch.tensor(group.action.low), persistent=False)
        self.register_buffer("high", torch.tensor(group.action.high), persistent=False)

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        action, generator, device = self.group.action, context.generator, observation.device
        shape = (*observation.shape[:1], self.group.n_agents)
        if action.kind == "continuous":
            low, high = self.low, self.high
            unit = torch.rand(*shape, action.n_components, generator=generator, device=device)
            log_prob = -torch.log(high - low).sum().expand(shape)
            return ActorOutput(low + unit * (high - low), log_prob, torch.zeros(*shape, 0, device=device))
        allowed = context.action_mask
        if allowed is None:
            allowed = torch.ones(*shape, action.n_logits, dtype=torch.bool, device=device)
        noise = torch.rand(allowed.shape, generator=generator, device=device).masked_fill_(~allowed, -1.0)
        choices, log_prob = [], torch.zeros(shape, device=device)
        for scores, component_mask in zip(noise.split(action.n, -1), allowed.split(action.n, -1)):
            choices.append(scores.argmax(-1))
            log_prob -= component_mask.sum(-1).clamp(min=1).log()
        chosen = choices[0] if action.kind == "discrete" else torch.stack(choices, -1)
        logits = torch.zeros(allowed.shape, device=device).masked_fill_(~allowed, -torch.inf)
        return ActorOutput(chosen, log_prob, logits)


class NoOpPolicy(Policy):
    """The first allowed choice, which does nothing in many environments; of a box, the number nearest to 0."""

    nearest_zero: Tensor

    def __init__(self, group: GroupSpec) -> None:
        super().__init__()
        self.group = group
        low, high = torch.tensor(group.action.low), torch.tensor(group.action.high)
        self.register_buffer("nearest_zero", torch.zeros_like(low).clamp(low, high), persistent=False)

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        spec, shape = self.group.action, (*observation.shape[:1], self.group.n_agents)
        if spec.kind == "continuous":
            return _certain(self.nearest_zero.expand(*shape, -1).clone(), shape)
        if context.action_mask is None:
            return _certain(torch.zeros(*shape, *spec.shape, dtype=torch.int64, device=observation.device), shape)
        choices = [allowed.long().argmax(-1) for allowed in context.action_mask.split(spec.n, -1)]
        return _certain(torch.stack(choices, -1) if spec.shape else choices[0], shape)


class FunctionPolicy(Policy):
    """Acts by a function of (observation, action_mask, group, generator), for all environments and agents at once.

    The function receives the observation `[env, agent, *shape]`, the action mask `[env, agent, choice]` bool or None,
    the GroupSpec, and the generator for its random numbers (None: torch's global one). It returns the action in the
    group's ActionSpec, `[env, agent(, component)]`.
    """

    low: Tensor
    high: Tensor

    def __init__(self, group: GroupSpec, function: ActionFunction, name: str) -> None:
        super().__init__()
        self.group, self.function, self.name = group, function, name
        discrete = group.action.kind != "continuous"
        self.register_buffer("low", torch.tensor(0.0 if discrete else group.action.low), persistent=False)
        high = [n - 1 for n in group.action.n] if discrete else group.action.high
        self.register_buffer("high", torch.tensor(high).reshape(group.action.shape), persistent=False)

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        """Raises ShapeError if the function returns no actions of this group, ConfigError if it raised."""
        lead = (*observation.shape[:1], self.group.n_agents)
        try:
            action = self.function(observation, context.action_mask, self.group, context.generator)
        except MarlnbError:
            raise
        except Exception as error:
            cause = user_code.describe_error(error, or_library=True) or f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.name}, which acts for group {self.group.name!r}, raised {cause}") from error
        spec, dtype = self.group.action, getattr(torch, self.group.action.dtype)
        shape = (*lead, *spec.shape)
        if not isinstance(action, Tensor) or tuple(action.shape) != shape or action.dtype != dtype:
            is_tensor = isinstance(action, Tensor)
            result = f"{action.dtype} {list(action.shape)}" if is_tensor else type(action).__name__
            raise ShapeError(f"{self.name} must return actions {dtype} {list(shape)}; it returned {result}")
        if bool(((action < self.low) | (action > self.high)).any()):
            bounds = f"{self.low.tolist()} to {self.high.tolist()}"
            raise ShapeError(f"{self.name} must return {spec.kind} actions of {bounds}; it returned {action.tolist()}")
        return _certain(action.to(observation.device), lead)


class FrozenPolicy(ActorPolicy):
    """The actor of a policy trained elsewhere, perhaps under another group's name. It does not learn.

    Its critic is dropped: it may read groups that do not exist here.

    Args:
        group: whose agents act.
        policy: the one that was trained, with an actor.
        missing: why it does not have its weights yet; empty if it has them.
    """

    def __init__(self, group: GroupSpec, policy: Policy, missing: str = "") -> None:
        super().__init__()
        self.group, self.missing = group, missing
        self.hold(policy)
        self.register_load_state_dict_post_hook(_has_weights)

    def hold(self, policy: Policy) -> None:
        """Acts by a policy from now on."""
        assert isinstance(policy, ActorPolicy)
        self.trained = policy.requires_grad_(False)
        self.actor = policy.actor
        self.greedy, self.recurrent_shape = policy.greedy, policy.recurrent_shape

    def check_weights(self) -> None:
        """Raises CheckpointError: it has no weights yet."""
        if self.missing:
            raise CheckpointError(self.missing)

    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        self.check_weights()
        return self.trained.choose(observation, context)._replace(extras={})

    def begin_episodes(self, done: Tensor) -> None:
        self.trained.begin_episodes(done)


def check_frozen_weights(policies: Iterable[Policy]) -> None:
    """Raises CheckpointError: one of these policies is frozen and has no weights yet."""
    for policy in policies:
        for each in policies_within(policy).values():
            if isinstance(each, FrozenPolicy):
                each.check_weights()


def _has_weights(policy: FrozenPolicy, incompatible: object) -> None:
    """Called when weights are loaded into a policy."""
    policy.missing = ""


def _certain(action: Tensor, shape: tuple[int, ...]) -> ActorOutput:
    """An action with probability 1, without a distribution."""
    return ActorOutput(action, torch.zeros(shape, device=action.device), torch.zeros(*shape, 0, device=action.device))

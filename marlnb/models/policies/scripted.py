"""Policies that nobody trained: random, no-op, a function of the user's; and one that somebody trained elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from marlnb import user_code
from marlnb.errors import ConfigError, MarlnbError, ShapeError
from marlnb.models.policies.actor import ActorPolicy
from marlnb.models.policies.policy import ActorOutput, Policy
from marlnb.specs import GroupSpec

ActionFunction = Callable[[Tensor, Tensor | None, GroupSpec, torch.Generator | None], Tensor]


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


class NoOpPolicy(Policy):
    """The first allowed choice, which many environments mean as doing nothing; of a box, the number nearest 0."""

    nearest_zero: Tensor

    def __init__(self, group: GroupSpec) -> None:
        super().__init__()
        self.group = group
        low, high = torch.tensor(group.action.low), torch.tensor(group.action.high)
        self.register_buffer("nearest_zero", torch.zeros_like(low).clamp(low, high), persistent=False)

    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        spec, rows = self.group.action, (*observation.shape[:1], self.group.n_agents)
        if spec.kind == "continuous":
            return _certain(self.nearest_zero.expand(*rows, -1).clone(), rows)
        if action_mask is None:
            return _certain(torch.zeros(*rows, *spec.shape, dtype=torch.int64, device=observation.device), rows)
        parts = [allowed.long().argmax(-1) for allowed in action_mask.split(spec.n, -1)]
        return _certain(torch.stack(parts, -1) if spec.shape else parts[0], rows)


class FunctionPolicy(Policy):
    """Acts by a function of (observation, action_mask, group, generator), all copies and agents at once.

    The function is given the observation `[env, agent, *shape]`, the action mask `[env, agent, choice]` bool or None,
    the GroupSpec, and the generator of what it draws (None: torch's global one); it returns the action as the group's
    ActionSpec says, `[env, agent(, component)]`.
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

    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        """Raises ShapeError where the function returns no actions of this group, ConfigError where it raised."""
        rows = (*observation.shape[:1], self.group.n_agents)
        try:
            action = self.function(observation, action_mask, self.group, generator)
        except MarlnbError:
            raise
        except Exception as error:
            whose = user_code.told(error, or_library=True) or f"{type(error).__name__}: {error}"
            raise ConfigError(f"{self.name}, which acts for group {self.group.name!r}, raised {whose}") from error
        spec, dtype = self.group.action, getattr(torch, self.group.action.dtype)
        shape = (*rows, *spec.shape)
        if not isinstance(action, Tensor) or tuple(action.shape) != shape or action.dtype != dtype:
            is_tensor = isinstance(action, Tensor)
            found = f"{action.dtype} {list(action.shape)}" if is_tensor else type(action).__name__
            raise ShapeError(f"{self.name} must return actions {dtype} {list(shape)}; it returned {found}")
        if bool(((action < self.low) | (action > self.high)).any()):
            asked = f"{self.low.tolist()} to {self.high.tolist()}"
            raise ShapeError(f"{self.name} must return {spec.kind} actions of {asked}; it returned {action.tolist()}")
        return _certain(action.to(observation.device), rows)


class FrozenPolicy(ActorPolicy):
    """The actor of a policy that was trained elsewhere, perhaps under another group's name; it learns no more.

    Its critic is left behind: it may read groups that are not here.
    """

    def __init__(self, group: GroupSpec, policy: ActorPolicy) -> None:
        super().__init__()
        self.group = group
        self.trained = policy.requires_grad_(False)
        self.actor = policy.actor
        self.recurrent_shape = policy.recurrent_shape

    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        output = self.trained.act(
            observation, recurrent=recurrent, action_mask=action_mask, explore=explore, generator=generator
        )
        return output._replace(extras={})


def _certain(action: Tensor, rows: tuple[int, ...]) -> ActorOutput:
    """An action that is chosen with probability 1, with no distribution to show."""
    nothing = torch.zeros(*rows, 0, device=action.device)
    return ActorOutput(action, torch.zeros(rows, device=action.device), nothing)

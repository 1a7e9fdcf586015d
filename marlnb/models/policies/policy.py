"""Policy: what one group of agents acts with. It has an actor, optionally a critic, and the sites inside both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from marlnb.errors import SiteError
from marlnb.models.hooks.sites import OBSERVATION, Site
from marlnb.models.networks.modes import in_mode
from marlnb.specs import GroupSpec

if TYPE_CHECKING:
    from marlnb.models.policies.distributions import ActionDistribution


Reads = Literal["agent", "group", "all"]
"""Whose observations an agent's outputs may depend on: its own, its group's, or every agent's."""


class ActContext(NamedTuple):
    """The arguments of `Policy.act` besides the observation.

    Attributes:
        recurrent: the actor's state before the step, `[env, agent, layer, unit]`; None: zero.
        action_mask: `[env, agent, choice]` bool, True where allowed; None: everything is allowed.
        explore: sample an action; otherwise take the most likely one.
        generator: random generator for sampling; None: torch's global one.
    """

    recurrent: Tensor | None = None
    action_mask: Tensor | None = None
    explore: bool = True
    generator: torch.Generator | None = None


class ActorOutput(NamedTuple):
    """The result of `Policy.act` for one time step. The policy does not write to these tensors again.

    Attributes:
        action: `[env, agent(, component)]` in the group's ActionSpec, ready for the environment.
        log_prob: `[env, agent]`, in nats, summed over components; zero where the policy has no density.
        logits: `[env, agent, parameter]`, the actor's output: masked logits for discrete actions, (mean, log_std)
            concatenated for continuous ones.
        recurrent: the actor's state after the step, `[env, agent, layer, unit]`; None for a feed-forward actor.
        extras: other tensors that this policy's learner stores, by name, each `[env, agent, ...]`.
    """

    action: Tensor
    log_prob: Tensor
    logits: Tensor
    recurrent: Tensor | None = None
    extras: Mapping[str, Tensor] = {}


class Policy(nn.Module, ABC):
    """One group's policy. A subclass sets `group` and defines `choose`.

    The recurrent state is zero at the start of an episode; the code that steps the environments resets it.

    Attributes:
        group: the agents, and their observation and action spaces.
        greedy: `logits` are Q values, and the largest one is taken: their softmax is not a probability.
        recurrent_shape: `(layer, unit)` of the actor's state; None for a feed-forward actor.
        critic_recurrent_shape: `(layer, unit)` of the critic's state; None for a feed-forward critic.
        noise_state: the state of the exploration noise, `[env, agent, component]`; None where it has none.
        observation_layer: identity that observations pass through while the site `<group>/observation` has a hook.
    """

    group: GroupSpec
    greedy: bool = False
    recurrent_shape: tuple[int, int] | None = None
    critic_recurrent_shape: tuple[int, int] | None = None
    noise_state: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.observation_layer = nn.Identity()

    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        """Chooses actions for observations `[env, agent, *shape]`; the other arguments are those of `ActContext`."""
        return self.choose(self.observe(observation), ActContext(recurrent, action_mask, explore, generator))

    @abstractmethod
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        """As `act`, for observations that have passed through `observe`."""

    def observe(self, observation: Tensor) -> Tensor:
        """Observations `[..., agent, *shape]` as the actor receives them: after edits of the observation site.

        The site has them flattened and as floats, `[..., agent, feature]`; the result has the original shape and
        dtype. Critics and learners read the environment's observations instead.
        """
        if not self.observation_layer._forward_hooks:  # saves two reshapes and a call at every step of a rollout
            return observation
        n_axes = len(self.group.observation.shape)
        flat = observation.flatten(-n_axes) if n_axes else observation.unsqueeze(-1)
        edited: Tensor = self.observation_layer(flat if flat.is_floating_point() else flat.float())
        if observation.dtype == torch.bool:
            edited = edited > 0.5
        elif not observation.is_floating_point():
            info = torch.iinfo(observation.dtype)
            edited = edited.round().clamp(info.min, info.max).to(observation.dtype)
        return edited.reshape(observation.shape)

    @property
    def observation_site(self) -> Site:
        """The site `<group>/observation`: what the actor receives. It is not in `sites`: environments record it."""
        group = self.group
        name = f"{group.name}/{OBSERVATION}"
        return Site(name, self.observation_layer, group.n_agents, group.observation.size, "hidden")

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The critic's estimate of the discounted return, in units of reward.

        Args:
            observations: of every group by name, `[..., agent, *shape]`: a centralised critic reads them all.
            state: `[..., *state_shape]` where the environment has a state.
            recurrent: the critic's state before the step, `[..., agent, layer, unit]`.
        Returns:
            values `[..., agent]`, and the critic's state after the step (None for a feed-forward critic).
        Raises:
            SiteError: the policy has no critic.
        """
        raise SiteError(f"the policy of {self.group.name!r} has no critic")

    @property
    def values_by_state(self) -> bool:
        """Whether the critic reads only the environment's state."""
        return False

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The actor's output before any mask, differentiable: `ActorOutput.logits`, unmasked.

        Args:
            observation: `[..., agent, *shape]`.
            recurrent: the state before the step, `[..., agent, layer, unit]`; None: zero.
        Returns:
            `[..., agent, parameter]`, and the state after the step.
        Raises:
            SiteError: the policy has no network.
        """
        raise SiteError(f"the policy of {self.group.name!r} ({type(self).__name__}) has no network to differentiate")

    def scale_bytes(self, values: Tensor) -> Tensor:
        """Converts images of bytes to the float input that `logits` and `value` can differentiate.

        Args:
            values: 0 to 255, as floats. By default they are returned as they are, for networks that scale them.
        """
        return values

    @property
    def distribution(self) -> ActionDistribution | None:
        """The distribution whose parameters `logits` are; None where the policy has no network."""
        return None

    @property
    def cross_agent(self) -> bool:
        """Whether one agent's logits may depend on another's observation."""
        return False

    @property
    def has_critic(self) -> bool:
        return False

    @property
    def critic_reads(self) -> Reads:
        """Whose observations an agent's value, and the units of critics and mixers, may depend on."""
        return "all"

    def reads(self, *, critic: bool) -> Reads:
        """Whose observations an agent's outputs may depend on: those of the critic and the mixer, or of the actor."""
        if critic:
            return self.critic_reads
        return "group" if self.cross_agent else "agent"

    def sites(self) -> list[Site]:
        """Every site, the actor's first, in forward order."""
        return []

    def begin_episodes(self, done: Tensor) -> None:
        """Called when episodes begin, `[env]` bool. A policy whose exploration noise has a state resets it."""

    def initial_recurrent(self, n_envs: int, device: torch.device | str) -> Tensor | None:
        """Zeros `[env, agent, layer, unit]`, None for a feed-forward actor."""
        if self.recurrent_shape is None:
            return None
        return torch.zeros(n_envs, self.group.n_agents, *self.recurrent_shape, device=device)


def device_of(*policies: Policy, default: torch.device | None = None) -> torch.device:
    """The device of the policies' tensors; `default`, or the CPU, for policies without tensors."""
    tensors = (tensor for policy in policies for tensor in (*policy.parameters(), *policy.buffers()))
    return next((tensor.device for tensor in tensors), default or torch.device("cpu"))


@contextmanager
def eval_mode(policies: Iterable[Policy]) -> Iterator[None]:
    """Puts policies into eval mode while the block runs, and restores the mode of each of their modules afterwards."""
    with in_mode(list(policies), training=False):
        yield


@contextmanager
def training_mode(policy: Policy) -> Iterator[None]:
    """Puts a policy into training mode, as for gradient steps, and restores its modules' modes afterwards."""
    with in_mode([policy], training=True):
        yield


def policies_within(policy: Policy) -> dict[str, Policy]:
    """The policy, and those that it acts by, by their names as modules."""
    return {name: module for name, module in policy.named_modules() if isinstance(module, Policy)}


@contextmanager
def new_noise(policies: Iterable[Policy]) -> Iterator[None]:
    """Exploration noise starts from 0 while the block runs; each policy's state of it is restored afterwards."""
    states = [(each, each.noise_state) for policy in policies for each in policies_within(policy).values()]
    for policy, _ in states:
        policy.noise_state = None
    try:
        yield
    finally:
        for policy, state in states:
            policy.noise_state = state

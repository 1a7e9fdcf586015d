"""Policy: what one group of agents acts with. An actor, perhaps a critic, and the sites inside both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from marlnb.models.hooks.sites import Site
from marlnb.specs import GroupSpec

if TYPE_CHECKING:
    from marlnb.models.policies.distributions import ActionDistribution


class ActorOutput(NamedTuple):
    """What `Policy.act` gives for one moment: tensors that the policy does not write to again.

    Attributes:
        action: as the group's ActionSpec says, `[env, agent(, component)]`, ready for the environment.
        log_prob: `[env, agent]`, in nats, summed over components; zero where the policy has no density.
        logits: `[env, agent, parameter]`, the actor's output: masked logits for discrete actions, (mean, log_std)
            concatenated for continuous ones.
        recurrent: the actor's state after the step, `[env, agent, layer, unit]`, None where it has none.
        extras: what else this policy's learner wants stored, by name, each `[env, agent, ...]`.
    """

    action: Tensor
    log_prob: Tensor
    logits: Tensor
    recurrent: Tensor | None = None
    extras: Mapping[str, Tensor] = {}


class Policy(nn.Module, ABC):
    """One group's policy.

    `recurrent_shape` is `(layer, unit)` of the actor's state, None for a feed-forward actor. The state at an
    episode's start is zero; whoever steps the environment zeroes the rows of copies that begin an episode.

    Attributes:
        greedy: `logits` are Q values, of which the largest is taken: their softmax is no probability of anything.
    """

    group: GroupSpec
    greedy: bool = False
    recurrent_shape: tuple[int, int] | None = None
    critic_recurrent_shape: tuple[int, int] | None = None

    @abstractmethod
    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        """Chooses actions for observations `[env, agent, *shape]`.

        Args:
            action_mask: `[env, agent, choice]` bool, True where allowed.
            explore: sample; otherwise the most likely action.
        """

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The critic's estimate of the discounted return, in units of reward.

        Args:
            observations: of every group by name, `[..., agent, *shape]`: a centralised critic reads them all.
            state: `[..., *state_shape]` where the environment has a state.
            recurrent: the critic's state that enters the step, `[..., agent, layer, unit]`.
        Returns:
            values `[..., agent]`, and the critic's state after the step (None for a feed-forward critic).
        Raises:
            SiteError: the policy has no critic.
        """
        from marlnb.errors import SiteError

        raise SiteError(f"the policy of {self.group.name!r} has no critic")

    @property
    def values_by_state(self) -> bool:
        """Whether values are computed of nothing but the environment's state."""
        return False

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The actor's output before any mask, which can be differentiated: what `act` gives, unmasked, as `logits`.

        Args:
            observation: `[..., agent, *shape]`; recurrent: the state that enters the step, `[..., agent, layer, unit]`;
                None: zero.
        Returns:
            `[..., agent, parameter]`, and the state after the step.
        Raises:
            SiteError: the policy has no network that gives such.
        """
        from marlnb.errors import SiteError

        raise SiteError(f"the policy of {self.group.name!r} ({type(self).__name__}) has no network to look into")

    def of_bytes(self, values: Tensor) -> Tensor:
        """What `logits` and `value` are to be given in the place of images of bytes, so that it can be differentiated.

        Args:
            values: 0 to 255, as floats; here the same, for networks that scale them by themselves.
        """
        return values

    @property
    def distribution(self) -> ActionDistribution | None:
        """What `logits` are the parameters of; None where the policy has no network."""
        return None

    @property
    def cross_agent(self) -> bool:
        """Whether one agent's logits may depend on another's observation."""
        return False

    @property
    def has_critic(self) -> bool:
        return False

    def sites(self) -> list[Site]:
        """Every site, the actor's first, in the order in which they fire."""
        return []

    def initial_recurrent(self, n_envs: int, device: torch.device | str) -> Tensor | None:
        """Zeros `[env, agent, layer, unit]`, None for a feed-forward actor."""
        if self.recurrent_shape is None:
            return None
        return torch.zeros(n_envs, self.group.n_agents, *self.recurrent_shape, device=device)

"""ExternalPolicy: a policy with the networks of another library, and marlnb's sites and distributions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.adapters.critic import ExternalCritic, flat
from marlnb.models.adapters.q_critic import ExternalQCritic
from marlnb.models.adapters.soft_critic import ExternalSoftCritic
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.mixers import Mixer
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.specs import GroupSpec


class ExternalPolicy(Policy):
    """A policy with the networks of another library.

    Args:
        group: the agents and their spaces.
        actor: maps flattened observations `[..., agent, feature]` to `[..., agent, output]`.
        distribution: the distribution of actions.
        parameters: maps the actor's output to the distribution's parameters; None: the identity.
        greedy: the outputs are Q values. The largest is always chosen, and the log-probability is 0.
        critic: estimates values from states.
        action_critic: estimates Q values; the value is its estimate for the policy's actions.
        mixer: combines the agents' largest Q values into the team's value.
    """

    value_scale = 1.0  # of the mixer's output, in units of reward

    def __init__(
        self,
        group: GroupSpec,
        actor: Network,
        distribution: ActionDistribution,
        *,
        parameters: nn.Module | None = None,
        greedy: bool = False,
        critic: ExternalCritic | None = None,
        action_critic: ExternalQCritic | ExternalSoftCritic | None = None,
        mixer: Mixer | None = None,
    ) -> None:
        super().__init__()
        self.group, self.network, self.greedy = group, actor, greedy
        self.action_critic, self.mixer = action_critic, mixer
        self._distribution, self.parameters_of, self.critic = distribution, parameters, critic
        self.recurrent_shape = actor.recurrent_shape
        self.critic_recurrent_shape = None if critic is None else critic.recurrent_shape
        if mixer is not None:
            self.critic_recurrent_shape = self.recurrent_shape
        self._check_sizes()

    @torch.no_grad()
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        logits, recurrent = self._logits(observation, context.recurrent)
        logits = self._distribution.mask(logits, context.action_mask)
        sample = self._distribution.choose(logits, context.generator, explore=context.explore and not self.greedy)
        log_prob = torch.zeros_like(sample.log_prob) if self.greedy else sample.log_prob
        return ActorOutput(sample.action, log_prob, logits, recurrent)

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self._logits(self.observe(observation), recurrent)

    def _logits(self, observation: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        output, next_state = self.network(flat(observation, self.group), recurrent)
        return output if self.parameters_of is None else self.parameters_of(output), next_state

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if self.critic is not None:
            return self.critic.step(observations, state, recurrent)
        if self.action_critic is None and self.mixer is None:
            return super().value(observations, state=state, recurrent=recurrent)
        logits, next_state = self._logits(observations[self.group.name], recurrent)
        if self.mixer is None:
            assert self.action_critic is not None
            return self.action_critic.estimate(observations, state, logits, self._distribution), None
        best = logits.amax(-1)
        return self.mixer(best, self.mixer.inputs(observations, state)).unsqueeze(-1).expand_as(best), next_state

    def to_reward_units(self, value: Tensor) -> Tensor:
        """The value: the mixer's output is in units of reward."""
        return value

    @property
    def distribution(self) -> ActionDistribution:
        return self._distribution

    @property
    def cross_agent(self) -> bool:
        return self.network.cross_agent

    @property
    def values_by_state(self) -> bool:
        return self.critic is not None and self.critic.reads == "state"

    @property
    def has_critic(self) -> bool:
        return not (self.critic is None and self.action_critic is None and self.mixer is None)

    def sites(self) -> list[Site]:
        parts = (part for part in (self.critic, self.action_critic, self.mixer) if part is not None)
        actor_sites = self.network.sites(f"{self.group.name}/actor", self.group.n_agents)
        return [*actor_sites, *(site for part in parts for site in part.sites())]

    @torch.no_grad()
    def _check_sizes(self) -> None:
        """Raises ConfigError unless the network fits the group's observations and actions."""
        group, n_parameters = self.group, self._distribution.n_parameters
        if self.network.in_features != group.observation.size * (group.n_agents if self.network.centralised else 1):
            raise ConfigError(
                f"the network of {group.name!r} reads {self.network.in_features} features; each of "
                f"{group.n_agents} agents observes {group.observation.size} features"
            )
        device = next((p.device for p in self.network.parameters()), torch.device("cpu"))
        dtype = getattr(torch, group.observation.dtype)
        observation = torch.zeros(2, group.n_agents, *group.observation.shape, dtype=dtype, device=device)
        shape = tuple(self._logits(observation)[0].shape)
        if shape != (2, group.n_agents, n_parameters):
            raise ConfigError(
                f"the network of {group.name!r} gives {list(shape[1:])} [agent, parameter]; "
                f"{type(self._distribution).__name__} needs {[group.n_agents, n_parameters]}"
            )

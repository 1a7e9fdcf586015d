"""ForeignPolicy: a policy made of networks from elsewhere, with marlnb's sites and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError, SiteError
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution
from marlnb.models.policies.policy import ActContext, ActorOutput, Policy
from marlnb.specs import EnvSpec, GroupSpec

if TYPE_CHECKING:
    from marlnb.models.adapters.q_critic import ForeignQCritic
    from marlnb.models.adapters.soft_critic import ForeignSoftCritic
    from marlnb.models.networks.mixers import Mixer

Reads = Literal["observation", "joint", "state"]


class ForeignCritic(nn.Module):
    """A critic: a network, and what it reads.

    Args:
        network: with an agent axis as long as the group, or of 1 where it computes once for all of its agents.
        reads: each agent's observation; all agents' observations in a row, in the order of `EnvSpec.agents`; or the
            environment's state.
    Raises:
        ConfigError: what it reads is of another size.
    """

    def __init__(self, group: GroupSpec, network: Network, env: EnvSpec, reads: Reads = "observation") -> None:
        super().__init__()
        self.group, self.network, self.env, self.reads = group, network, env, reads
        size = {
            "observation": group.observation.size * (group.n_agents if network_is_central(network) else 1),
            "joint": sum(member.n_agents * member.observation.size for member in env.groups),
            "state": 0 if env.state_shape is None else int(torch.Size(env.state_shape).numel()),
        }[reads]
        if size != network.in_features:
            raise ConfigError(
                f"the critic of {group.name!r} reads {network.in_features} features; the {reads} in {env.name}: {size}"
            )
        self.shared_forward = network.n_agents == 1 < group.n_agents
        self.recurrent_shape = network.recurrent_shape

    def forward(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor:
        """Values `[..., agent]` from the zero recurrent state (`step` takes another)."""
        return self.step(observations, state)[0]

    def step(
        self, observations: Mapping[str, Tensor], state: Tensor | None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Values `[..., agent]`, and the recurrent state after the step, `[..., agent, layer, unit]`."""
        if recurrent is not None and self.shared_forward:
            recurrent = recurrent[..., :1, :, :]
        output, after = self.network(self.inputs(observations, state), recurrent)
        values, n = output.squeeze(-1), self.group.n_agents
        if after is not None:
            after = after.expand(*after.shape[:-3], n, *after.shape[-2:])
        return values.expand(*values.shape[:-1], n), after

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor:
        """`[..., row, feature]`, a row for each agent, or one for all."""
        if self.reads == "observation":
            return flat(observations[self.group.name], self.group)
        by_state = self.reads == "state"
        whole = whole_state(self.group, self.env, state) if by_state else joint(self.env, observations)
        return whole.unsqueeze(-2).expand(*whole.shape[:-1], self.network.n_agents, -1)

    def sites(self) -> list[Site]:
        return self.network.sites(f"{self.group.name}/critic", self.group.n_agents, shared_forward=self.shared_forward)


class ForeignPolicy(Policy):
    """A policy of networks that marlnb did not make.

    Args:
        actor: observations flattened, `[..., agent, feature]` -> `[..., agent, output]`.
        distribution: what its parameters are of.
        parameters: makes them of the actor's output; None: the output is them.
        greedy: the outputs are Q values: the largest is taken, exploring or not, and there is no log-probability.
        critic: estimates values; or judges: critics of actions, which estimate them of what all would do.
        mixer: makes one Q of the agents' own, whose best is then the value.
    """

    value_scale = 1.0  # of a mixer's output, in reward

    def __init__(
        self,
        group: GroupSpec,
        actor: Network,
        distribution: ActionDistribution,
        *,
        parameters: nn.Module | None = None,
        greedy: bool = False,
        critic: ForeignCritic | None = None,
        judges: ForeignQCritic | ForeignSoftCritic | None = None,
        mixer: Mixer | None = None,
    ) -> None:
        super().__init__()
        self.group, self.network, self.greedy = group, actor, greedy
        self.judges, self.mixer = judges, mixer
        self._distribution, self.parameters_of, self.critic = distribution, parameters, critic
        self.recurrent_shape = actor.recurrent_shape
        self.critic_recurrent_shape = None if critic is None else critic.recurrent_shape
        if mixer is not None:
            self.critic_recurrent_shape = self.recurrent_shape
        self._check()

    @torch.no_grad()
    def choose(self, observation: Tensor, context: ActContext) -> ActorOutput:
        logits, recurrent = self._logits(observation, context.recurrent)
        logits = self._distribution.mask(logits, context.action_mask)
        if context.explore and not self.greedy:
            sample = self._distribution.sample(logits, context.generator)
        else:
            sample = self._distribution.mode(logits)
        log_prob = torch.zeros_like(sample.log_prob) if self.greedy else sample.log_prob
        return ActorOutput(sample.action, log_prob, logits, recurrent)

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self._logits(self.observe(observation), recurrent)

    def _logits(self, observation: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        output, after = self.network(flat(observation, self.group), recurrent)
        return output if self.parameters_of is None else self.parameters_of(output), after

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if self.critic is not None:
            return self.critic.step(observations, state, recurrent)
        if self.judges is None and self.mixer is None:
            return super().value(observations, state=state, recurrent=recurrent)
        logits, after = self._logits(observations[self.group.name], recurrent)
        if self.mixer is None:
            assert self.judges is not None
            return self.judges.estimate(observations, state, logits, self._distribution), None
        best = logits.amax(-1)
        return self.mixer(best, self.mixer.inputs(observations, state)).unsqueeze(-1).expand_as(best), after

    def to_reward_units(self, value: Tensor) -> Tensor:
        """In units of reward, what the mixer says: the same."""
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
        return not (self.critic is None and self.judges is None and self.mixer is None)

    def sites(self) -> list[Site]:
        found = self.network.sites(f"{self.group.name}/actor", self.group.n_agents)
        others = (part for part in (self.critic, self.judges, self.mixer) if part is not None)
        return [*found, *(site for part in others for site in part.sites())]

    @torch.no_grad()
    def _check(self) -> None:
        """Raises ConfigError unless the network fits the group's observations and actions."""
        group, n = self.group, self._distribution.n_parameters
        if self.network.in_features != group.observation.size * (
            group.n_agents if network_is_central(self.network) else 1
        ):
            raise ConfigError(
                f"the network of {group.name!r} reads {self.network.in_features} features; an observation "
                f"has {group.observation.size}, of {group.n_agents} agents"
            )
        device = next((p.device for p in self.network.parameters()), torch.device("cpu"))
        dtype = getattr(torch, group.observation.dtype)
        seen = torch.zeros(2, group.n_agents, *group.observation.shape, dtype=dtype, device=device)
        found = tuple(self.logits(seen)[0].shape)
        if found != (2, group.n_agents, n):
            raise ConfigError(
                f"the network of {group.name!r} gives {list(found[1:])} [agent, parameter]; "
                f"{type(self._distribution).__name__} of its actions has {[group.n_agents, n]}"
            )


def joint(env: EnvSpec, observations: Mapping[str, Tensor]) -> Tensor:
    """All agents' observations in a row, in the order of `EnvSpec.agents`, `[..., feature]`."""
    return torch.cat([flat(observations[group.name], group).flatten(-2) for group in env.groups], dim=-1)


def whole_state(group: GroupSpec, env: EnvSpec, state: Tensor | None) -> Tensor:
    """The environment's state as one vector, `[..., feature]`.

    Raises:
        SiteError: none was given.
    """
    if state is None or env.state_shape is None:
        raise SiteError(f"the critic of {group.name!r} reads the environment's state; none was given")
    return state.flatten(state.ndim - len(env.state_shape))


def network_is_central(network: Network) -> bool:
    """Whether its `in_features` count every agent's observation."""
    return bool(getattr(network, "centralised", False))


def flat(observation: Tensor, group: GroupSpec) -> Tensor:
    """`[..., agent, *shape]` -> `[..., agent, feature]`, in its own dtype."""
    axes = len(group.observation.shape)
    if axes == 1:
        return observation
    return observation.flatten(-axes) if axes else observation.unsqueeze(-1)

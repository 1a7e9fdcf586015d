"""ActorCritic: the policy of IPPO and MAPPO. An actor with a distribution, a critic of its own or of everyone's view.

`policy.actor` is a module from observations `[batch, agent, feature]` to the distribution's parameters, and
`policy.critic` one from critic inputs to values, so that attribution can differentiate either of them directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.errors import ShapeError
from marlnb.models.distributions import ActionDistribution, Gaussian, Squash, action_distribution
from marlnb.models.network import Network
from marlnb.models.policy import ActorOutput, Policy
from marlnb.models.sites import Site
from marlnb.models.value_norm import ValueNorm
from marlnb.specs import EnvSpec, GroupSpec

StdOf = Literal["parameter", "network"]
ACTOR_HEAD_GAIN = 0.01


class Actor(nn.Module):
    """Observations `[..., agent, *shape]` to the action distribution's parameters `[..., agent, parameter]`.

    Continuous actions: (mean, log_std) concatenated, where log_std is a parameter that does not depend on the
    observation (one for all agents that share a network, else one each), or the network's second half.
    """

    log_std: nn.Parameter | None

    def __init__(
        self, group: GroupSpec, config: ModelConfig, *, squash: Squash, std_of: StdOf, initial_log_std: float
    ) -> None:
        super().__init__()
        self.distribution: ActionDistribution = action_distribution(group.action, squash)
        self.observation_axes = len(group.observation.shape)
        own_std = isinstance(self.distribution, Gaussian) and std_of == "parameter"
        components = group.action.n_components
        width = components if own_std else self.distribution.n_parameters
        self.network: Network = config.build(group.n_agents, group.observation.size, width)
        scale_head(self.network, ACTOR_HEAD_GAIN)
        agents = () if config.share_parameters else (group.n_agents,)
        self.log_std = nn.Parameter(torch.full((*agents, components), initial_log_std)) if own_std else None

    def forward(self, observation: Tensor) -> Tensor:
        """One moment from the zero recurrent state (`step` takes another)."""
        return self.step(observation)[0]

    def step(self, observation: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Parameters, and the recurrent state after the step, `[..., agent, layer, unit]`."""
        output, recurrent = self.network(features(observation, self.observation_axes), recurrent)
        return self.with_std(output), recurrent

    def with_std(self, output: Tensor) -> Tensor:
        """The network's output with the standard deviation's parameters beside it."""
        if self.log_std is None:
            return output
        return torch.cat((output, self.log_std.expand_as(output)), dim=-1)


class Critic(nn.Module):
    """Normalised values `[..., agent]` of a group's agents.

    Decentralised: each agent from its own observation. Centralised: every group's observations, agent by agent in the
    environment's order, and its state where there is one, concatenated to one vector. With shared weights that vector
    goes once through one network, whose head has a unit for each agent's value, so the sites have an agent axis of 1;
    unshared, each agent has a network of its own.
    """

    def __init__(self, group: GroupSpec, env: EnvSpec, config: ModelConfig, *, centralised: bool) -> None:
        super().__init__()
        self.group_name, self.n_agents, self.centralised = group.name, group.n_agents, centralised
        self.axes = {other.name: len(other.observation.shape) for other in env.groups}
        self.reads = tuple(self.axes) if centralised else (group.name,)
        self.state_axes = len(env.state_shape or ())
        self.reads_state = centralised and env.state_shape is not None
        self.once_for_all = centralised and config.share_parameters
        if self.once_for_all:
            self.network: Network = config.build(1, joint_features(env), group.n_agents)
        else:
            width = joint_features(env) if centralised else group.observation.size
            self.network = config.build(group.n_agents, width, 1)

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None = None) -> Tensor:
        """What `forward` takes, made of `Policy.value`'s arguments: `[..., agent, feature]`, one agent if centralised.

        Raises:
            ShapeError: the environment has a state, and none was given.
        """
        if not self.centralised:
            return features(observations[self.group_name], self.axes[self.group_name])
        parts = [features(observations[name], self.axes[name]).flatten(-2) for name in self.reads]
        if self.reads_state:
            if state is None:
                raise ShapeError(
                    f"the centralised critic of {self.group_name!r} needs the environment's state; got None"
                )
            parts.append(features(state, self.state_axes))
        return torch.cat(parts, dim=-1).unsqueeze(-2)

    def forward(self, inputs: Tensor) -> Tensor:
        """One moment from the zero recurrent state (`step` takes another)."""
        return self.step(inputs)[0]

    def step(self, inputs: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Normalised values `[..., agent]`, and the recurrent state after the step."""
        output, recurrent = self.network(self.spread(inputs), recurrent)
        return self.by_agent(output), recurrent

    def spread(self, inputs: Tensor) -> Tensor:
        """Inputs as the network takes them: the common vector seen by each agent's network where there are several."""
        if not self.centralised or self.once_for_all:
            return inputs
        return inputs.expand(*inputs.shape[:-2], self.n_agents, inputs.shape[-1])

    def by_agent(self, output: Tensor) -> Tensor:
        """The network's output as values `[..., agent]`."""
        return output.squeeze(-2 if self.once_for_all else -1)


class ActorCritic(Policy):
    """An actor and a critic.

    Args:
        centralised: whether the critic reads every group's observations and the environment's state.
        squash: how continuous actions are bounded; std_of: where their standard deviation comes from;
            initial_log_std: of continuous actions in `[-1, 1]` units, in nats.
    """

    def __init__(
        self,
        group: GroupSpec,
        env: EnvSpec,
        actor: ModelConfig,
        critic: ModelConfig,
        *,
        centralised: bool = False,
        squash: Squash = "tanh",
        std_of: StdOf = "parameter",
        initial_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.group = group
        self.actor = Actor(group, actor, squash=squash, std_of=std_of, initial_log_std=initial_log_std)
        self.critic = Critic(group, env, critic, centralised=centralised)
        self.value_norm = ValueNorm()
        self.recurrent_shape = self.actor.network.recurrent_shape
        self.critic_recurrent_shape = self.critic.network.recurrent_shape

    @torch.no_grad()
    def act(
        self,
        observation: Tensor,
        *,
        recurrent: Tensor | None = None,
        action_mask: Tensor | None = None,
        explore: bool = True,
        generator: torch.Generator | None = None,
    ) -> ActorOutput:
        distribution = self.actor.distribution
        parameters, after = self.actor.step(observation, recurrent)
        parameters = distribution.mask(parameters, action_mask)
        chosen = distribution.sample(parameters, generator) if explore else distribution.mode(parameters)
        extras = {} if chosen.stored is chosen.action else {distribution.stored_as: chosen.stored}
        return ActorOutput(chosen.action, chosen.log_prob, parameters, after, extras)

    def value(
        self, observations: Mapping[str, Tensor], *, state: Tensor | None = None, recurrent: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if recurrent is not None and self.critic.once_for_all:
            recurrent = recurrent[..., :1, :, :]
        values, after = self.critic.step(self.critic.inputs(observations, state), recurrent)
        if after is not None:
            after = after.expand(*after.shape[:-3], self.group.n_agents, *after.shape[-2:])
        return self.value_norm.denormalise(values), after

    @property
    def has_critic(self) -> bool:
        return True

    def sites(self) -> list[Site]:
        networks = (("actor", self.actor.network, False), ("critic", self.critic.network, self.critic.once_for_all))
        return [
            Site(f"{self.group.name}/{part}/{layer}", module, self.group.n_agents, n_units, kind, once)
            for part, network, once in networks
            for layer, module, n_units, kind in network.site_modules()
        ]

    def initial_critic_recurrent(self, n_envs: int, device: torch.device | str) -> Tensor | None:
        """Zeros `[env, agent, layer, unit]`, None for a feed-forward critic."""
        if self.critic_recurrent_shape is None:
            return None
        return torch.zeros(n_envs, self.group.n_agents, *self.critic_recurrent_shape, device=device)


def features(x: Tensor, n_axes: int) -> Tensor:
    """One vector of float32 for each agent: the last `n_axes` axes flattened, bytes scaled from 0..255 to 0..1."""
    if n_axes != 1:
        x = x.flatten(-n_axes) if n_axes else x.unsqueeze(-1)
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x if x.dtype == torch.float32 else x.float()


def joint_features(env: EnvSpec) -> int:
    """Features of every agent's observation and of the state, together."""
    state = 0
    if env.state_shape is not None:
        state = int(torch.Size(env.state_shape).numel())
    return state + sum(group.n_agents * group.observation.size for group in env.groups)


@torch.no_grad()
def scale_head(network: Network, gain: float) -> None:
    """Scales the weights of the network's heads, which start orthogonal with gain 1.

    Source: Andrychowicz et al. 2021, What Matters in On-Policy RL, section 3.2 (arXiv:2006.05990).
    """
    for _, module, _, kind in network.site_modules():
        weight = getattr(module, "weight", None)
        if kind == "head" and weight is not None:
            weight.mul_(gain)

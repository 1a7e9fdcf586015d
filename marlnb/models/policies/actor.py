"""Actor: observations to an action distribution's parameters; ActorPolicy: the base of policies with one actor network.

`policy.actor` is a module from observations `[batch, agent, *shape]` to parameters, so that attribution can
differentiate it directly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.building.build_network import build_network
from marlnb.models.networks.inputs import features
from marlnb.models.networks.network import Network
from marlnb.models.policies.choices import LOG_STD_RANGE, Squash, StdOf
from marlnb.models.policies.distributions import ActionDistribution, Gaussian, action_distribution
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec, InputSpec

ACTOR_HEAD_GAIN = 0.01


class Actor(nn.Module):
    """Observations `[..., agent, *shape]` to the action distribution's parameters `[..., agent, parameter]`.

    Continuous actions: (mean, log_std) concatenated. log_std is either a parameter that does not depend on the
    observation (one for agents that share a network, else one for each), or the second half of the network's output.

    Args:
        group: the agents and their spaces.
        config: the network.
        squash: how continuous actions are bounded.
        std_of: where the standard deviation of continuous actions comes from.
        initial_log_std: its initial logarithm, if it is a parameter.
        distribution: replaces the action's usual distribution, such as `Deterministic`.
    """

    log_std: nn.Parameter | None

    def __init__(
        self,
        group: GroupSpec,
        config: ModelConfig,
        *,
        squash: Squash = "tanh",
        std_of: StdOf = "network",
        initial_log_std: float = 0.0,
        distribution: ActionDistribution | None = None,
    ) -> None:
        super().__init__()
        self.distribution: ActionDistribution = distribution or action_distribution(group.action, squash)
        self.observation_axes = len(group.observation.shape)
        std_is_parameter = isinstance(self.distribution, Gaussian) and std_of == "parameter"
        components = group.action.n_components
        width = components if std_is_parameter else self.distribution.n_parameters
        self.network: Network = build_network(config, group.n_agents, InputSpec((group.observation.shape,)), width)
        scale_head(self.network, ACTOR_HEAD_GAIN)
        agents = () if config.share_parameters else (group.n_agents,)
        self.log_std = nn.Parameter(torch.full((*agents, components), initial_log_std)) if std_is_parameter else None

    def forward(self, observation: Tensor) -> Tensor:
        """Parameters `[..., agent, parameter]` for one time step from the zero recurrent state."""
        return self.step(observation)[0]

    def step(self, observation: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Parameters `[..., agent, parameter]`, and the recurrent state after the step, `[..., agent, layer, unit]`."""
        output, recurrent = self.network(features(observation, self.observation_axes), recurrent)
        return self.with_std(output), recurrent

    @torch.no_grad()
    def bound_log_std(self) -> None:
        """Clamps a log_std parameter to LOG_STD_RANGE. Beyond it the parameter has no gradient that brings it back."""
        if self.log_std is not None:
            self.log_std.clamp_(*LOG_STD_RANGE)

    def with_std(self, output: Tensor) -> Tensor:
        """The network's output, with log_std appended where it is a parameter."""
        if self.log_std is None:
            return output
        return torch.cat((output, self.log_std.expand_as(output)), dim=-1)


class ActorPolicy(Policy):
    """A policy whose actor is one network of the observations, so its outputs can be attributed.

    A subclass sets `group`, `actor` and `recurrent_shape`, and lists its other networks in `networks`.

    Attributes:
        learns_from_replay: the torchrl loss that trains it reads actions of a replay buffer, in the environment's
            units; otherwise those that a rollout stores, `Sample.stored`.
    """

    actor: Actor
    learns_from_replay: bool = False

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.actor.step(self.observe(observation), recurrent)

    def scale_bytes(self, values: Tensor) -> Tensor:
        """Scales 0..255 to 0..1, as `features` does."""
        return values / 255

    @property
    def distribution(self) -> ActionDistribution:
        return self.actor.distribution

    @property
    def cross_agent(self) -> bool:
        return self.actor.network.cross_agent

    def networks(self) -> list[tuple[str, Network, bool]]:
        """(part, network, whether one forward pass serves all agents), in forward order."""
        return [("actor", self.actor.network, False)]

    def sites(self) -> list[Site]:
        return [
            site
            for part, network, shared_forward in self.networks()
            for site in network.sites(f"{self.group.name}/{part}", self.group.n_agents, shared_forward=shared_forward)
        ]


@torch.no_grad()
def scale_head(network: Network, gain: float) -> None:
    """Scales the weights of the network's heads, which start orthogonal with gain 1.

    Source: Andrychowicz et al. 2021, What Matters in On-Policy RL, section 3.2 (arXiv:2006.05990).
    """
    for _, module, _, kind in network.site_modules():
        weight = getattr(module, "weight", None)
        if kind == "head" and weight is not None:
            weight.mul_(gain)

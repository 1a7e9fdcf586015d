"""Actor: observations to an action distribution's parameters; ActorPolicy: what the policies that have one share.

`policy.actor` is a module from observations `[batch, agent, *shape]` to parameters, so that attribution can
differentiate it directly.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from marlnb.config import ModelConfig
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.network import Network
from marlnb.models.policies.distributions import ActionDistribution, Gaussian, Squash, action_distribution
from marlnb.models.policies.policy import Policy
from marlnb.specs import GroupSpec, InputSpec

StdOf = Literal["parameter", "network"]
ACTOR_HEAD_GAIN = 0.01


class Actor(nn.Module):
    """Observations `[..., agent, *shape]` to the action distribution's parameters `[..., agent, parameter]`.

    Continuous actions: (mean, log_std) concatenated, where log_std is a parameter that does not depend on the
    observation (one for all agents that share a network, else one each), or the network's second half.

    Args:
        distribution: another than the action's usual one, as `Deterministic`.
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
        own_std = isinstance(self.distribution, Gaussian) and std_of == "parameter"
        components = group.action.n_components
        width = components if own_std else self.distribution.n_parameters
        self.network: Network = config.build(group.n_agents, InputSpec((group.observation.shape,)), width)
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


class ActorPolicy(Policy):
    """A policy whose actor is one network of the observations: its outputs can be attributed, its sites seen.

    A subclass sets `group`, `actor` and `recurrent_shape`, and names its other networks in `networks`.
    """

    actor: Actor

    def logits(self, observation: Tensor, *, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.actor.step(observation, recurrent)

    def of_bytes(self, values: Tensor) -> Tensor:
        """As `features` scales bytes."""
        return values / 255

    @property
    def distribution(self) -> ActionDistribution:
        return self.actor.distribution

    @property
    def cross_agent(self) -> bool:
        return self.actor.network.cross_agent

    def networks(self) -> list[tuple[str, Network, bool]]:
        """(part, network, whether it computes once for all agents), in the order in which they fire."""
        return [("actor", self.actor.network, False)]

    def sites(self) -> list[Site]:
        return [
            site
            for part, network, once in self.networks()
            for site in network.sites(f"{self.group.name}/{part}", self.group.n_agents, shared_forward=once)
        ]


def features(x: Tensor, n_axes: int) -> Tensor:
    """One vector of float32 for each agent: the last `n_axes` axes flattened, bytes scaled from 0..255 to 0..1."""
    if n_axes != 1:
        x = x.flatten(-n_axes) if n_axes else x.unsqueeze(-1)
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x if x.dtype == torch.float32 else x.float()


@torch.no_grad()
def scale_head(network: Network, gain: float) -> None:
    """Scales the weights of the network's heads, which start orthogonal with gain 1.

    Source: Andrychowicz et al. 2021, What Matters in On-Policy RL, section 3.2 (arXiv:2006.05990).
    """
    for _, module, _, kind in network.site_modules():
        weight = getattr(module, "weight", None)
        if kind == "head" and weight is not None:
            weight.mul_(gain)

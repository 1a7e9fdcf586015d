"""Mixers combine the agents' Q values to the team's: VDN adds them, QMIX weights them by the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from marlnb.errors import ShapeError
from marlnb.models.hooks.sites import Site
from marlnb.models.networks.inputs import features
from marlnb.specs import EnvSpec, GroupSpec


class Mixer(nn.Module, ABC):
    """Q values `[..., agent]` to the team's `[...]`, monotonic in each: dQ_tot / dQ_i >= 0.

    An agent that is not alive takes part with a Q of 0.

    Attributes:
        reads: the groups whose observations the mixer reads.
    """

    reads: tuple[str, ...] = ()

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor | None:
        """The second argument of `forward`, `[..., feature]`, from the arguments of `Policy.value`; None if unused."""
        return None

    @abstractmethod
    def forward(self, q: Tensor, inputs: Tensor | None) -> Tensor:
        """q `[..., agent]`, inputs `[..., feature]` -> the team's Q `[...]`."""

    def sites(self) -> list[Site]:
        return []


class SumMixer(Mixer):
    """VDN: Q_tot = sum_i Q_i. Source: Sunehag et al. 2017, equation 1 (arXiv:1706.05296)."""

    def forward(self, q: Tensor, inputs: Tensor | None = None) -> Tensor:
        return q.sum(-1)


class MonotonicMixer(Mixer):
    """QMIX: a hidden layer and an output whose weights are non-negative functions of the state s:

        Q_tot = |w_2(s)| . ELU(|W_1(s)| Q + b_1(s)) + b_2(s)

    s is the environment's state; without one, every group's observations, agent by agent. `hyper` computes all weights
    and biases in one affine map, and b_2 has its own hidden layer. The site `<group>/mixer/hidden` has an agent axis
    of 1.

    Args:
        group: the team.
        env: the environment.
        units: units of the mixer's hidden layer.
        hyper_units: units of a tanh layer between the state and `hyper`. 0: none, as in the paper; the weights are then
            linear in the state, and grow with unbounded states such as positions, as may the values.
    Source: Rashid et al. 2018, section 4 (arXiv:1803.11485); PyMARL also has hypernetworks of two layers.
    """

    def __init__(self, group: GroupSpec, env: EnvSpec, units: int, hyper_units: int = 0) -> None:
        super().__init__()
        self.group_name, self.n_agents, self.units = group.name, group.n_agents, units
        self.state_axes = None if env.state_shape is None else len(env.state_shape)
        self.reads = env.group_names if env.state_shape is None else ()
        self.axes = {other.name: len(other.observation.shape) for other in env.groups}
        if env.state_shape is None:
            n_features = sum(other.n_agents * other.observation.size for other in env.groups)
        else:
            n_features = torch.Size(env.state_shape).numel()
        self.sizes = (group.n_agents * units, units, units, units)
        self.view = nn.Sequential(nn.Linear(n_features, hyper_units), nn.Tanh()) if hyper_units else nn.Identity()
        self.hyper = nn.Linear(hyper_units or n_features, sum(self.sizes))
        self.hidden = nn.ELU()
        self.last_bias = nn.Linear(units, 1)

    def inputs(self, observations: Mapping[str, Tensor], state: Tensor | None) -> Tensor:
        """`[..., feature]`.

        Raises:
            ShapeError: the environment has a state, and `state` is None.
        """
        if self.state_axes is None:
            parts = [features(observations[name], self.axes[name]).flatten(-2) for name in self.reads]
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        if state is None:
            raise ShapeError(f"the mixer of {self.group_name!r} needs the environment's state; got None")
        return features(state, self.state_axes)

    def forward(self, q: Tensor, inputs: Tensor | None) -> Tensor:
        first, first_bias, second, third = self.hyper(self.view(inputs)).split(self.sizes, dim=-1)
        weights = first.abs().unflatten(-1, (self.n_agents, self.units))
        hidden = self.hidden((q.unsqueeze(-1) * weights).sum(-2, keepdim=True) + first_bias.unsqueeze(-2))
        bias = self.last_bias(third.relu()).squeeze(-1)
        total: Tensor = (hidden.squeeze(-2) * second.abs()).sum(-1) + bias
        return total

    def sites(self) -> list[Site]:
        name = f"{self.group_name}/mixer/hidden"
        return [Site(name, self.hidden, self.n_agents, self.units, "hidden", shared_forward=True)]

"""MLP: hidden layers and a head, registered as `mlp`; and the base of all networks that have both."""

from __future__ import annotations

import itertools
from typing import cast

from torch import Tensor, nn

from marlnb.config import NETWORKS
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.mlp import HiddenConfig, MLPConfig
from marlnb.models.networks.layers import AgentLinear, HiddenLayer, hidden_layer
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec


class HiddenNetwork(Network):
    """Hidden layers, each a site, and a linear head `[..., n_agents, in] -> [..., n_agents, out]`.

    A subclass calls `add_hidden`, then `add_head`, and creates its own layers before or between them.
    One with layers between them has its own `readers`.

    Raises:
        ConfigError: a size is 0.
    """

    hidden: nn.Sequential
    head: AgentLinear

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: HiddenConfig) -> None:
        super().__init__()
        in_features = inputs.features
        for what, values in (("hidden", config.hidden), ("inputs", (in_features,)), ("out_features", (out_features,))):
            if min(values, default=1) < 1:
                raise ConfigError(f"model {config.name!r}: {what} must be at least 1 each; got {values}")
        self.n_agents, self.in_features, self.out_features, self.config = n_agents, in_features, out_features, config

    def add_hidden(self, in_features: int) -> int:
        """Creates the hidden layers; returns the number of their outputs."""
        widths = [in_features, *self.config.hidden]
        pairs = itertools.pairwise(widths)
        self.hidden = nn.Sequential(*(hidden_layer(self.n_agents, *pair, self.config) for pair in pairs))
        return widths[-1]

    def add_head(self, in_features: int) -> None:
        self.head = AgentLinear(self.n_agents, in_features, self.out_features, shared=self.config.share_parameters)

    def embed(self, x: Tensor) -> Tensor:
        """What the hidden layers read, `[..., n_agents, feature]`."""
        return x

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.head(self.hidden(self.embed(x))), None

    def readers(self) -> list[AgentLinear]:
        """The affine maps that read the output of the last hidden layer."""
        return [self.head]

    def first_sites(self) -> list[SiteModule]:
        """The sites before the hidden layers."""
        return []

    def inner_sites(self) -> list[SiteModule]:
        """The sites between the hidden layers and the head."""
        return []

    def site_modules(self) -> list[SiteModule]:
        layers = enumerate((cast(HiddenLayer, layer) for layer in self.hidden), start=1)
        hidden: list[SiteModule] = [(f"hidden_{k}", layer, layer.linear.out_features, "hidden") for k, layer in layers]
        return [*self.first_sites(), *hidden, *self.inner_sites(), ("head", self.head, self.out_features, "head")]


@NETWORKS.register(MLPConfig)
class MLP(HiddenNetwork):
    """Hidden layers and a linear head, nothing else."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: HiddenConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        self.add_head(self.add_hidden(inputs.features))

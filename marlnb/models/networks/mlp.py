"""MLP: hidden layers and a head, registered as `mlp`; and the base of all networks that have both."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.agent_id import NetworkConfig
from marlnb.models.networks.layers import ActivationName, AgentLinear, HiddenLayer
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec


@dataclass(frozen=True)
class HiddenConfig(NetworkConfig):
    """The options of every network that has hidden layers."""

    hidden: tuple[int, ...] = option((64, 64), help="units of each hidden layer", unit="units")
    activation: ActivationName = option("tanh", help="the hidden layers' nonlinearity")
    layer_norm: bool = option(False, help="normalise each hidden layer before its nonlinearity")

    def layer(self, n_agents: int, in_features: int, units: int) -> HiddenLayer:
        """A hidden layer with these options."""
        shared, act = self.share_parameters, self.activation
        return HiddenLayer(n_agents, in_features, units, act=act, shared=shared, layer_norm=self.layer_norm)


class HiddenNetwork(Network):
    """Hidden layers, each a site, and a linear head `[..., n_agents, in] -> [..., n_agents, out]`.

    A subclass calls `add_hidden`, then `add_head`, and creates its own layers before or between them.

    Raises:
        ConfigError: a size is 0.
    """

    hidden: nn.Sequential
    head: AgentLinear

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: HiddenConfig) -> None:
        super().__init__()
        for what, values in (("hidden", config.hidden), ("inputs", (in_features,)), ("out_features", (out_features,))):
            if min(values, default=1) < 1:
                raise ConfigError(f"model {config.name!r}: {what} must be at least 1 each; got {values}")
        self.n_agents, self.in_features, self.out_features, self.config = n_agents, in_features, out_features, config

    def add_hidden(self, in_features: int) -> int:
        """Creates the hidden layers; returns the number of their outputs."""
        widths = [in_features, *self.config.hidden]
        self.hidden = nn.Sequential(*(self.config.layer(self.n_agents, *pair) for pair in itertools.pairwise(widths)))
        return widths[-1]

    def add_head(self, in_features: int) -> None:
        self.head = AgentLinear(self.n_agents, in_features, self.out_features, shared=self.config.share_parameters)

    def embed(self, x: Tensor) -> Tensor:
        """What the hidden layers read, `[..., n_agents, feature]`."""
        return x

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.head(self.hidden(self.embed(x))), None

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


class MLP(HiddenNetwork):
    """Hidden layers and a linear head, nothing else."""

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: HiddenConfig) -> None:
        super().__init__(n_agents, in_features, out_features, config)
        self.add_head(self.add_hidden(in_features))


@dataclass(frozen=True)
class FlatConfig(HiddenConfig):
    """The options of a network that reads each agent's input as one vector; a subclass builds it in `assemble`."""

    flatten: bool = option(True, help="read observations with several axes as one vector; false: raise an error")

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        """Raises ConfigError where inputs have several axes and must not be flattened."""
        shapes = sorted({part for part in inputs.parts if len(part) > 1})
        if shapes and not self.flatten:
            shape_list = ", ".join(map(str, shapes))
            readers = ", ".join(name for name, kind in MODELS.items() if kind.reads_shape)
            raise ConfigError(
                f"model {self.name!r} with flatten=false reads vectors; got {shape_list}. "
                f"Models that read the shape: {readers}; or flatten=true"
            )
        return self.assemble(n_agents, inputs.features, out_features)

    @abstractmethod
    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        """The network: `[..., n_agents, in_features]` to `[..., n_agents, out_features]`."""


@MODELS.register("mlp")
@dataclass(frozen=True)
class MLPConfig(FlatConfig):
    """A feed-forward network."""

    def assemble(self, n_agents: int, in_features: int, out_features: int) -> Network:
        return MLP(n_agents, in_features, out_features, self)

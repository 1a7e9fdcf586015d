"""MLP: hidden layers and a head; the feed-forward network, registered as `mlp`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.hooks.sites import SiteKind
from marlnb.models.networks.agent_id import NetworkConfig
from marlnb.models.networks.layers import ActivationName, AgentLinear, HiddenLayer
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec


class MLP(Network):
    """Hidden layers, each a site, and a linear head `[..., n_agents, in] -> [..., n_agents, out]`."""

    def __init__(self, n_agents: int, in_features: int, out_features: int, config: HiddenConfig) -> None:
        super().__init__()
        self.n_agents, self.in_features, self.out_features = n_agents, in_features, out_features
        self.hidden = hidden_layers(n_agents, in_features, config)
        width = config.hidden[-1] if config.hidden else in_features
        self.head = AgentLinear(n_agents, width, out_features, shared=config.share_parameters)

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        for layer in self.hidden:
            x = layer(x)
        return self.head(x), None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        return [*hidden_sites(self.hidden), ("head", self.head, self.out_features, "head")]


@dataclass(frozen=True)
class HiddenConfig(NetworkConfig):
    """The options of every network that has hidden layers."""

    hidden: tuple[int, ...] = option((64, 64), help="units of each hidden layer", unit="units")
    activation: ActivationName = option("tanh", help="the hidden layers' nonlinearity")
    layer_norm: bool = option(False, help="normalise each hidden layer before its nonlinearity")


@dataclass(frozen=True)
class FlatConfig(HiddenConfig):
    """The options of a network that reads each agent's input as one vector."""

    flatten: bool = option(True, help="read observations with several axes as one vector; false: raise an error")

    def check_flat(self, inputs: InputSpec) -> None:
        """Raises ConfigError where inputs have several axes and must not be flattened."""
        shapes = sorted({part for part in inputs.parts if len(part) > 1})
        if shapes and not self.flatten:
            shape_list = ", ".join(map(str, shapes))
            readers = ", ".join(name for name, kind in MODELS.items() if kind.reads_shape)
            raise ConfigError(
                f"model {self.name!r} with flatten=false reads vectors; got {shape_list}. "
                f"Models that read the shape: {readers}; or flatten=true"
            )


@MODELS.register("mlp")
@dataclass(frozen=True)
class MLPConfig(FlatConfig):
    """A feed-forward network."""

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        self.check_flat(inputs)
        check_sizes(self.name, hidden=self.hidden, inputs=(inputs.features,), out_features=(out_features,))
        return MLP(n_agents, inputs.features, out_features, self)


def hidden_layers(n_agents: int, in_features: int, config: HiddenConfig) -> nn.ModuleList:
    """The hidden layers that `config` asks for."""
    widths = [in_features, *config.hidden]
    return nn.ModuleList(
        HiddenLayer(
            n_agents,
            width,
            units,
            act=config.activation,
            shared=config.share_parameters,
            layer_norm=config.layer_norm,
        )
        for width, units in itertools.pairwise(widths)
    )


def hidden_sites(layers: nn.ModuleList) -> list[tuple[str, nn.Module, int, SiteKind]]:
    """hidden_1 to hidden_k."""
    named = enumerate(layers, start=1)
    return [
        (f"hidden_{index}", layer, cast(HiddenLayer, layer).linear.out_features, "hidden") for index, layer in named
    ]


def check_sizes(model: str, **sizes: tuple[int, ...]) -> None:
    """Raises ConfigError unless every size is at least 1."""
    for what, values in sizes.items():
        if any(value < 1 for value in values):
            raise ConfigError(f"model {model!r}: {what} must be at least 1 each; got {values}")

"""Options of the MLP, and of every network that has hidden layers; `marlnb.models.networks.mlp` has the networks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.choices import ActivationName
from marlnb.models.networks.configs.network import NetworkConfig
from marlnb.specs import InputSpec

if TYPE_CHECKING:
    from marlnb.models.networks.layers import HiddenLayer
    from marlnb.models.networks.network import Network


@dataclass(frozen=True)
class HiddenConfig(NetworkConfig):
    """The options of every network that has hidden layers."""

    hidden: tuple[int, ...] = option((64, 64), help="units of each hidden layer", unit="units", ge=1, le=65_536)
    activation: ActivationName = option("tanh", help="the hidden layers' nonlinearity")
    layer_norm: bool = option(False, help="normalise each hidden layer before its nonlinearity")

    def layer(self, n_agents: int, in_features: int, units: int) -> HiddenLayer:
        """A hidden layer with these options."""
        from marlnb.models.networks.layers import HiddenLayer

        shared, act = self.share_parameters, self.activation
        return HiddenLayer(n_agents, in_features, units, act=act, shared=shared, layer_norm=self.layer_norm)


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
        from marlnb.models.networks.mlp import MLP

        return MLP(n_agents, in_features, out_features, self)

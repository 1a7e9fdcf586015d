"""Options of the MLP, and of every network that has hidden layers; `marlnb.models.networks.mlp` has the networks."""

from __future__ import annotations

from dataclasses import dataclass

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.network import ActivationName, NetworkConfig
from marlnb.specs import InputSpec


@dataclass(frozen=True)
class HiddenConfig(NetworkConfig):
    """The options of every network that has hidden layers."""

    hidden: tuple[int, ...] = option((64, 64), help="units of each hidden layer", unit="units", ge=1, le=65_536)
    activation: ActivationName = option("tanh", help="the hidden layers' nonlinearity")
    layer_norm: bool = option(False, help="normalise each hidden layer before its nonlinearity")


@dataclass(frozen=True)
class FlatConfig(HiddenConfig):
    """The options of a network that reads each agent's input as one vector."""

    flatten: bool = option(True, help="read observations with several axes as one vector; false: raise an error")

    def check_inputs(self, inputs: InputSpec) -> None:
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

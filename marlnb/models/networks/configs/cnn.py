"""Options of the CNN; `marlnb.models.networks.cnn` has the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import HiddenConfig
from marlnb.models.networks.configs.network import ActivationName
from marlnb.specs import InputSpec

Layout = Literal["last", "first"]


@MODELS.register("cnn")
@dataclass(frozen=True)
class CNNConfig(HiddenConfig):
    """A convolutional network for images; other inputs bypass the convolutions.

    Images are observations with 3 axes, or 4 with a stack of frames, which become channels. Images of the same shape
    share their convolutions, for example those of all agents that a centralised critic reads.
    """

    reads_shape: ClassVar[bool] = True

    hidden: tuple[int, ...] = option(
        (128,), help="units of each hidden layer after the convolutions", unit="units", ge=1, le=65_536
    )
    channels: tuple[int, ...] = option((16, 32, 32), help="channels of each convolution", ge=1, le=65_536)
    kernels: tuple[int, ...] = option((8, 4, 3), help="width and height of its filters", unit="pixels", ge=1)
    strides: tuple[int, ...] = option((4, 2, 1), help="step of its filters", unit="pixels", ge=1)
    conv_activation: ActivationName = option("relu", help="the convolutions' nonlinearity")
    layout: Layout = option("last", help="where an image's channels are: after height and width, or before")

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = {len(self.channels), len(self.kernels), len(self.strides)}
        if len(lengths) > 1 or not self.channels:
            raise ConfigError(
                f"model {self.name!r}: channels, kernels and strides have one value for each convolution; "
                f"got {self.channels}, {self.kernels}, {self.strides}"
            )

    def check_inputs(self, inputs: InputSpec) -> None:
        if not any(len(part) in (3, 4) for part in inputs.parts):
            raise ConfigError(
                f"model {self.name!r} reads images, (height, width, channel) or a stack of them; "
                f"got inputs of shape {', '.join(map(str, dict.fromkeys(inputs.parts)))}"
            )

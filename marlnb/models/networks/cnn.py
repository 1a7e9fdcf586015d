"""CNN: convolutions over the images in each agent's input, hidden layers and a head; registered as `cnn`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.config import MODELS, option
from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks.sites import SiteKind
from marlnb.models.networks.inputs import Columns
from marlnb.models.networks.layers import HIDDEN_GAIN, ActivationName, AgentLinear, activation
from marlnb.models.networks.mlp import HiddenConfig, check_sizes, hidden_layers, hidden_sites
from marlnb.models.networks.network import Network
from marlnb.specs import InputSpec

Layout = Literal["last", "first"]
ImageShape = tuple[int, int, int]  # height, width, channel


class AgentConv(nn.Module):
    """A convolution and a nonlinearity, `[..., n_agents, image * in]` -> `[..., n_agents, image * out]`.

    Each agent has `n_images` images of shape (height, width, channel), flattened in that order, and so is the output:
    a site. Agents and environments are folded into the batch; unshared weights use one grouped convolution.

    Attributes:
        weight: `[out, in, kernel, kernel]` if shared, else `[n_agents, out, in, kernel, kernel]`; starts orthogonal.
        bias: `[out]` or `[n_agents, out]`.
    """

    def __init__(
        self,
        n_agents: int,
        n_images: int,
        shape: ImageShape,
        channels: int,
        kernel: int,
        stride: int,
        *,
        act: ActivationName,
        shared: bool,
    ) -> None:
        super().__init__()
        height, width, in_channels = shape
        self.n_agents, self.n_images, self.in_shape, self.stride, self.shared = (
            n_agents,
            n_images,
            shape,
            stride,
            shared,
        )
        self.out_shape = ((height - kernel) // stride + 1, (width - kernel) // stride + 1, channels)
        agents = () if shared else (n_agents,)
        self.weight = nn.Parameter(torch.empty(*agents, channels, in_channels, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(*agents, channels))
        self.activation = activation(act)
        with torch.no_grad():
            for filters in self.weight.view(-1, channels, in_channels * kernel * kernel):
                nn.init.orthogonal_(filters, HIDDEN_GAIN)

    @property
    def units(self) -> int:
        height, width, channels = self.out_shape
        return self.n_images * height * width * channels

    def forward(self, x: Tensor) -> Tensor:
        """x `[env, agent, image * height * width * in]`, with any leading axes -> the output images, flattened."""
        lead = x.shape[:-2]
        if self.shared:
            images = x.reshape(-1, *self.in_shape).permute(0, 3, 1, 2)
            maps = F.conv2d(images, self.weight, self.bias, self.stride).permute(0, 2, 3, 1)
        else:
            if x.shape[-2] != self.n_agents:
                raise ShapeError(f"unshared filters of {self.n_agents} agents got [..., {x.shape[-2]}, {x.shape[-1]}]")
            maps = self._by_agent(x)
        activated: Tensor = self.activation(maps.reshape(*lead, x.shape[-2], self.units))
        return activated

    def _by_agent(self, x: Tensor) -> Tensor:
        """The agents' filters as groups of channels."""
        height, width, channels = self.in_shape
        images = x.reshape(-1, self.n_agents, self.n_images, height, width, channels).permute(0, 2, 1, 5, 3, 4)
        images = images.reshape(-1, self.n_agents * channels, height, width)
        maps = F.conv2d(images, self.weight.flatten(0, 1), self.bias.flatten(), self.stride, groups=self.n_agents)
        height, width, channels = self.out_shape
        maps = maps.reshape(-1, self.n_images, self.n_agents, channels, height, width)
        return maps.permute(0, 2, 1, 4, 5, 3)


class Trunk(nn.Module):
    """The convolutions over all images of one shape."""

    def __init__(
        self, n_agents: int, columns: Columns, n_images: int, part: tuple[int, ...], config: CNNConfig
    ) -> None:
        super().__init__()
        self.columns, self.part, self.layout = columns, part, config.layout
        shape = image_shape(part, config.layout)
        self.convs = nn.ModuleList()
        for channels, kernel, stride in zip(config.channels, config.kernels, config.strides, strict=True):
            if min(shape[:2]) < kernel:
                raise ConfigError(
                    f"model {config.name!r}: layer {len(self.convs) + 1} has kernels of {kernel} pixels, but its "
                    f"input is {shape[0]} x {shape[1]} (of images {part}); set model.kernels and model.strides"
                )
            conv = AgentConv(
                n_agents,
                n_images,
                shape,
                channels,
                kernel,
                stride,
                act=config.conv_activation,
                shared=config.share_parameters,
            )
            self.convs.append(conv)
            shape = conv.out_shape

    @property
    def units(self) -> int:
        return cast(AgentConv, self.convs[-1]).units

    def forward(self, x: Tensor) -> Tensor:
        x = self.columns.take(x)
        if self.layout == "first" or len(self.part) == 4:
            x = self._channels_last(x)
        for conv in self.convs:
            x = conv(x)
        return x

    def _channels_last(self, x: Tensor) -> Tensor:
        """Flat images of any layout as (height, width, stack and channel)."""
        images = x.unflatten(-1, (-1, *((1,) if len(self.part) == 3 else ()), *self.part))
        stack, height, width, channel = (-4, -2, -1, -3) if self.layout == "first" else (-4, -3, -2, -1)
        leading = range(images.ndim - 4)
        return images.permute(*leading, *(images.ndim + axis for axis in (height, width, stack, channel))).flatten(-5)


class CNN(Network):
    """Convolutions over the images, hidden layers over their features and all other inputs, and a linear head."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: CNNConfig) -> None:
        super().__init__()
        self.n_agents, self.in_features, self.out_features = n_agents, inputs.features, out_features
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for index, part in enumerate(inputs.parts):
            if len(part) in (3, 4):
                by_shape.setdefault(part, []).append(index)
        self.trunks = nn.ModuleList(
            Trunk(n_agents, Columns(inputs, parts), len(parts), shape, config) for shape, parts in by_shape.items()
        )
        others = [index for index, part in enumerate(inputs.parts) if part not in by_shape]
        self.rest = Columns(inputs, others, context=True)
        width = self.rest.n_features + sum(trunk.units for trunk in self._trunks)
        self.hidden = hidden_layers(n_agents, width, config)
        self.head = AgentLinear(
            n_agents, config.hidden[-1] if config.hidden else width, out_features, shared=config.share_parameters
        )

    def forward(self, x: Tensor, recurrent: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        parts = [trunk(x) for trunk in self._trunks]
        if self.rest.n_features:
            parts.append(self.rest.take(x))
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        for layer in self.hidden:
            x = layer(x)
        return self.head(x), None

    def site_modules(self) -> list[tuple[str, nn.Module, int, SiteKind]]:
        sites: list[tuple[str, nn.Module, int, SiteKind]] = []
        for number, trunk in enumerate(self._trunks, start=1):
            prefix = f"image_{number}/" if len(self.trunks) > 1 else ""
            sites += [
                (f"{prefix}conv_{index}", conv, cast(AgentConv, conv).units, "hidden")
                for index, conv in enumerate(trunk.convs, start=1)
            ]
        return [*sites, *hidden_sites(self.hidden), ("head", self.head, self.out_features, "head")]

    @property
    def _trunks(self) -> Sequence[Trunk]:
        return cast(Sequence[Trunk], self.trunks)


@MODELS.register("cnn")
@dataclass(frozen=True)
class CNNConfig(HiddenConfig):
    """A convolutional network for images; other inputs bypass the convolutions.

    Images are observations with 3 axes, or 4 with a stack of frames, which become channels. Images of the same shape
    share their convolutions, for example those of all agents that a centralised critic reads.
    """

    reads_shape: ClassVar[bool] = True

    hidden: tuple[int, ...] = option((128,), help="units of each hidden layer after the convolutions", unit="units")
    channels: tuple[int, ...] = option((16, 32, 32), help="channels of each convolution", ge=1)
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

    def network(self, n_agents: int, inputs: InputSpec, out_features: int) -> Network:
        check_sizes(self.name, hidden=self.hidden, inputs=(inputs.features,), out_features=(out_features,))
        if not any(len(part) in (3, 4) for part in inputs.parts):
            raise ConfigError(
                f"model {self.name!r} reads images, (height, width, channel) or a stack of them; "
                f"got inputs of shape {', '.join(map(str, dict.fromkeys(inputs.parts)))}"
            )
        return CNN(n_agents, inputs, out_features, self)


def image_shape(part: tuple[int, ...], layout: Layout) -> ImageShape:
    """Height, width and channels of an image or a stack of them."""
    stack, image = (1, part) if len(part) == 3 else (part[0], part[1:])
    height, width, channels = (image[1], image[2], image[0]) if layout == "first" else image
    return height, width, stack * channels

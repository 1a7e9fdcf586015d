"""CNN: convolutions over the images in each agent's input, hidden layers and a head; registered as `cnn`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from marlnb.config import NETWORKS
from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks.sites import SiteModule
from marlnb.models.networks.configs.cnn import CNNConfig, Layout
from marlnb.models.networks.inputs import Columns, join
from marlnb.models.networks.layers import HIDDEN_GAIN, activation
from marlnb.models.networks.mlp import HiddenNetwork
from marlnb.specs import InputSpec

ImageShape = tuple[int, int, int]  # height, width, channel


class AgentConv(nn.Module):
    """A convolution and a nonlinearity, `[..., n_agents, image * in]` -> `[..., n_agents, image * out]`.

    Each agent has `n_images` images of shape (height, width, channel), flattened in that order, and so is the output:
    a site. Agents and environments are folded into the batch; unshared weights use one grouped convolution.

    Args:
        size: channels, kernel and stride.

    Attributes:
        weight: `[out, in, kernel, kernel]` if shared, else `[n_agents, out, in, kernel, kernel]`; starts orthogonal.
        bias: `[out]` or `[n_agents, out]`.
    """

    def __init__(
        self, n_agents: int, n_images: int, shape: ImageShape, size: tuple[int, int, int], config: CNNConfig
    ) -> None:
        super().__init__()
        (height, width, in_channels), (channels, kernel, stride) = shape, size
        self.n_agents, self.n_images, self.in_shape = n_agents, n_images, shape
        self.stride, self.shared = stride, config.share_parameters
        self.out_shape = ((height - kernel) // stride + 1, (width - kernel) // stride + 1, channels)
        agents = () if self.shared else (n_agents,)
        self.weight = nn.Parameter(torch.empty(*agents, channels, in_channels, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(*agents, channels))
        self.activation = activation(config.conv_activation)
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
        return self.activation(maps.reshape(*lead, x.shape[-2], self.units))  # type: ignore[no-any-return]

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
        self.convs = nn.Sequential()
        for size in zip(config.channels, config.kernels, config.strides, strict=True):
            if min(shape[:2]) < size[1]:
                raise ConfigError(
                    f"model {config.name!r}: layer {len(self.convs) + 1} has kernels of {size[1]} pixels, but its "
                    f"input is {shape[0]} x {shape[1]} (of images {part}); set model.kernels and model.strides"
                )
            conv = AgentConv(n_agents, n_images, shape, size, config)
            self.convs.append(conv)
            shape = conv.out_shape

    @property
    def units(self) -> int:
        return cast(AgentConv, self.convs[-1]).units

    def forward(self, x: Tensor) -> Tensor:
        x = self.columns.take(x)
        if self.layout == "first" or len(self.part) == 4:
            x = self._channels_last(x)
        return self.convs(x)  # type: ignore[no-any-return]

    def _channels_last(self, x: Tensor) -> Tensor:
        """Flat images of any layout as (height, width, stack and channel)."""
        images = x.unflatten(-1, (-1, *((1,) if len(self.part) == 3 else ()), *self.part))
        stack, height, width, channel = (-4, -2, -1, -3) if self.layout == "first" else (-4, -3, -2, -1)
        leading = range(images.ndim - 4)
        return images.permute(*leading, *(images.ndim + axis for axis in (height, width, stack, channel))).flatten(-5)


@NETWORKS.register(CNNConfig)
class CNN(HiddenNetwork):
    """Convolutions over the images, hidden layers over their features and all other inputs, and a linear head."""

    def __init__(self, n_agents: int, inputs: InputSpec, out_features: int, config: CNNConfig) -> None:
        super().__init__(n_agents, inputs, out_features, config)
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for index, part in enumerate(inputs.parts):
            if len(part) in (3, 4):
                by_shape.setdefault(part, []).append(index)
        trunks = [
            Trunk(n_agents, Columns(inputs, parts), len(parts), shape, config) for shape, parts in by_shape.items()
        ]
        self.trunks = nn.ModuleList(trunks)
        others = [index for index, part in enumerate(inputs.parts) if part not in by_shape]
        self.rest = Columns(inputs, others, context=True)
        self.add_head(self.add_hidden(self.rest.n_features + sum(trunk.units for trunk in trunks)))

    def embed(self, x: Tensor) -> Tensor:
        return join([*(trunk(x) for trunk in self.trunks), self.rest.take(x)])

    def first_sites(self) -> list[SiteModule]:
        sites: list[SiteModule] = []
        for number, trunk in enumerate(cast(Iterable[Trunk], self.trunks), start=1):
            prefix = f"image_{number}/" if len(self.trunks) > 1 else ""
            convs = enumerate(cast(Iterable[AgentConv], trunk.convs), start=1)
            sites += [(f"{prefix}conv_{index}", conv, conv.units, "hidden") for index, conv in convs]
        return sites


def image_shape(part: tuple[int, ...], layout: Layout) -> ImageShape:
    """Height, width and channels of an image or a stack of them."""
    stack, image = (1, part) if len(part) == 3 else (part[0], part[1:])
    height, width, channels = (image[1], image[2], image[0]) if layout == "first" else image
    return height, width, stack * channels

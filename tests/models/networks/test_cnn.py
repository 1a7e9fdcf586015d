from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from marlnb.errors import ConfigError
from marlnb.models.networks.cnn import CNN, AgentConv
from marlnb.models.networks.configs.cnn import CNNConfig
from marlnb.specs import InputSpec

SMALL = {"channels": (4, 5), "kernels": (3, 2), "strides": (2, 1), "hidden": (6,)}


def make(inputs: InputSpec, *, share: bool = True, n_agents: int = 3, **options: object) -> CNN:
    torch.manual_seed(2)
    network = CNNConfig(share_parameters=share, **(SMALL | options)).build(n_agents, inputs, 2)  # type: ignore[arg-type]
    assert isinstance(network, CNN)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network


def oracle(conv: AgentConv, images: Tensor, agent: int | None) -> Tensor:
    """torch's own convolution, of images `[batch, height, width, channel]` -> the same with its channels."""
    own = slice(None) if agent is None else agent
    weight = conv.weight[own]
    torchs = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2], conv.stride)
    torchs.load_state_dict({"weight": weight, "bias": conv.bias[own]})
    return torch.relu(torchs(images.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)


def layer(linear: nn.Module, x: Tensor, agent: int | None) -> Tensor:
    own = slice(None) if agent is None else agent
    weight, bias = linear.weight[own], linear.bias[own]  # type: ignore[index, union-attr]
    return x @ weight.T + bias  # type: ignore[no-any-return, union-attr, operator]


@pytest.mark.parametrize("share", [True, False])
def test_each_agent_equals_torchs_convolutions(share: bool) -> None:
    """An image, and three features that go round the convolutions."""
    network = make(InputSpec(((9, 7, 2), (3,))), share=share)
    image, rest = torch.randn(5, 3, 9, 7, 2), torch.randn(5, 3, 3)
    output = network(torch.cat((image.flatten(2), rest), dim=-1))[0]
    first, second = network.trunks[0].convs  # type: ignore[index, misc, union-attr]
    for agent in range(3):
        own = None if share else agent
        maps = oracle(second, oracle(first, image[:, agent], own), own)
        assert maps.shape == (5, 3, 2, 5)
        seen = torch.cat((maps.flatten(1), rest[:, agent]), dim=-1)
        hidden = torch.tanh(layer(network.hidden[0].linear, seen, own))  # type: ignore[union-attr, arg-type]
        torch.testing.assert_close(output[:, agent], layer(network.head, hidden, own))


@pytest.mark.parametrize("share", [True, False])
def test_a_sites_units_are_the_feature_maps_height_width_channel(share: bool) -> None:
    network = make(InputSpec(((9, 7, 2),)), share=share)
    captured: list[Tensor] = []
    name, module, n_units, _ = network.site_modules()[0]
    module.register_forward_hook(lambda module, inputs, output: captured.append(output))
    image = torch.randn(2, 5, 3, 9, 7, 2)
    network(image.flatten(-3))
    assert name == "conv_1" and captured[0].shape == (2, 5, 3, n_units) and n_units == 4 * 3 * 4
    for agent in range(3):
        expected = oracle(module, image[:, :, agent].flatten(0, 1), None if share else agent)  # type: ignore[arg-type]
        torch.testing.assert_close(captured[0][:, :, agent].flatten(0, 1), expected.flatten(1))


def test_channels_may_come_first_and_stacks_of_frames_become_channels() -> None:
    image = torch.randn(5, 3, 9, 7, 6)
    expected = make(InputSpec(((9, 7, 6),)))(image.flatten(2))[0]
    first = make(InputSpec(((6, 9, 7),)), layout="first")
    torch.testing.assert_close(first(image.permute(0, 1, 4, 2, 3).flatten(2))[0], expected)
    stacked = image.unflatten(-1, (3, 2))  # frame, then channel
    by_frame = make(InputSpec(((3, 9, 7, 2),)))
    torch.testing.assert_close(by_frame(stacked.permute(0, 1, 4, 2, 3, 5).flatten(2))[0], expected)
    both = make(InputSpec(((3, 2, 9, 7),)), layout="first")
    torch.testing.assert_close(both(stacked.permute(0, 1, 4, 5, 2, 3).flatten(2))[0], expected)


@pytest.mark.parametrize("share", [True, False])
def test_all_images_of_a_shape_go_through_one_trunk(share: bool) -> None:
    """What a centralised critic sees: two images, a vector, two other images, the state."""
    inputs = InputSpec(((9, 7, 2), (9, 7, 2), (4,), (5, 5, 1), (5, 5, 1), (3,)))
    network = make(inputs, share=share, n_agents=2)
    names = [site[0] for site in network.site_modules()]
    assert names[:4] == ["image_1/conv_1", "image_1/conv_2", "image_2/conv_1", "image_2/conv_2"]
    assert [site[2] for site in network.site_modules()][:4] == [2 * 4 * 3 * 4, 2 * 3 * 2 * 5, 2 * 2 * 2 * 4, 2 * 5]
    x = torch.randn(3, 2, inputs.features)
    parts = x.split(inputs.sizes, dim=-1)
    output = network(x)[0]
    for agent in range(2):
        own, seen = None if share else agent, []
        for trunk, members in zip(network.trunks, ((0, 1), (3, 4))):
            for member in members:
                maps = parts[member][:, agent].unflatten(-1, inputs.parts[member])
                for conv in trunk.convs:  # type: ignore[union-attr]
                    maps = oracle(conv, maps, own)  # type: ignore[arg-type]
                seen.append(maps.flatten(1))
        seen += [parts[2][:, agent], parts[5][:, agent]]
        hidden = torch.tanh(layer(network.hidden[0].linear, torch.cat(seen, dim=-1), own))  # type: ignore[union-attr, arg-type]
        torch.testing.assert_close(output[:, agent], layer(network.head, hidden, own))


@pytest.mark.parametrize("share", [True, False])
def test_filters_start_orthogonal(share: bool) -> None:
    conv = AgentConv(3, 1, (9, 7, 2), (4, 3, 2), CNNConfig(share_parameters=share))
    for filters in conv.weight.view(-1, 4, 18):
        torch.testing.assert_close(filters @ filters.T, 2 * torch.eye(4), atol=1e-5, rtol=0)


def test_unsupported_inputs_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"reads images.*\(6,\), \(4, 3\)"):
        make(InputSpec(((6,), (4, 3))))
    with pytest.raises(ConfigError, match="layer 2 has kernels of 4 pixels, but its input is 3 x 2"):
        make(InputSpec(((9, 7, 2),)), kernels=(4, 4))
    with pytest.raises(ConfigError, match="one value for each convolution"):
        CNNConfig(channels=(4,))

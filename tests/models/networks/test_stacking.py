"""Stacked networks compute what each network computes by itself, and have the same gradients."""

from __future__ import annotations

import pytest
import torch

from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.networks.stacking import check_stackable, stack
from marlnb.specs import InputSpec

INPUTS = InputSpec(((4,),))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layer_norm", [True, False])
def test_outputs_and_gradients_are_those_of_each_network(shared: bool, layer_norm: bool) -> None:
    config = MLPConfig(hidden=(5, 6), share_parameters=shared, layer_norm=layer_norm)
    networks = [config.build(3, INPUTS, 2) for _ in range(4)]
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():
                parameter.normal_()
    weights = {
        name: torch.stack([network.get_parameter(name) for network in networks]).detach().requires_grad_()
        for name, _ in networks[0].named_parameters()
    }
    x, target = torch.randn(4, 7, 3, 4), torch.randn(4, 7, 3, 2)
    output = stack(networks[0], weights)(x)[0]
    gradients = torch.autograd.grad((output - target).square().sum(), list(weights.values()))
    for k, network in enumerate(networks):
        alone = network(x[k])[0]
        torch.testing.assert_close(output[k], alone, rtol=1e-5, atol=1e-5)
        expected = torch.autograd.grad((alone - target[k]).square().sum(), list(network.parameters()))
        for ours, theirs in zip(gradients, expected):
            torch.testing.assert_close(ours[k], theirs, rtol=1e-4, atol=1e-4)


def test_networks_of_other_kinds_or_shapes_are_errors() -> None:
    mlp = MLPConfig(hidden=(5,)).build(3, INPUTS, 2)
    with pytest.raises(ConfigError, match=r"the actor is a network of kind 'gru'; .* need kind 'mlp'"):
        check_stackable([GRUConfig().build(3, INPUTS, 2)], "the actor")
    for other in (MLPConfig(hidden=(6,)), MLPConfig(hidden=(5,), activation="relu")):
        with pytest.raises(ConfigError, match="the actor has different layers in the training runs"):
            check_stackable([mlp, other.build(3, INPUTS, 2)], "the actor")
    mlp.head.requires_grad_(False)
    with pytest.raises(ConfigError, match=r"the actor has frozen parameters, such as head.weight; .* train all"):
        check_stackable([mlp, mlp], "the actor")

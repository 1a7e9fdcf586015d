from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from torch import nn

from marlnb.errors import ConfigError, ShapeError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.networks.fast.linear import fast_linear
from marlnb.models.networks.layers import AgentGRUCell, AgentLinear, activation, fast_training
from marlnb.specs import InputSpec


@pytest.mark.parametrize("axes", [(), (4,), (4, 5)])
def test_unshared_weights_act_agent_by_agent(axes: tuple[int, ...]) -> None:
    layer = AgentLinear(3, 6, 4, shared=False)
    nn.init.normal_(layer.bias)
    x = torch.randn(*axes, 3, 6)
    expected = torch.stack([x[..., k, :] @ layer.weight[k].T + layer.bias[k] for k in range(3)], dim=-2)
    assert layer(x).shape == (*axes, 3, 4)
    torch.testing.assert_close(layer(x), expected)


def test_shared_weights_broadcast() -> None:
    layer = AgentLinear(3, 6, 4, shared=True)
    x = torch.randn(4, 3, 6)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)


def test_unshared_weights_refuse_another_number_of_agents() -> None:
    with pytest.raises(ShapeError, match="3 agents"):
        AgentLinear(3, 6, 4, shared=False)(torch.randn(4, 2, 6))


@pytest.mark.parametrize("shared", [True, False])
def test_initial_weights_are_orthogonal_for_each_agent(shared: bool) -> None:
    layer = AgentLinear(3, 6, 9, shared=shared, gain=2.0)
    for weight in layer.weight.view(-1, 9, 6):
        torch.testing.assert_close(weight.T @ weight, 4 * torch.eye(6), atol=1e-5, rtol=0)
    if not shared:
        assert not torch.equal(layer.weight[0], layer.weight[1])


def test_the_gru_equals_torchs_cell_for_each_agent() -> None:
    cell = AgentGRUCell(3, 6, 5, shared=False)
    nn.init.normal_(cell.input.bias)
    nn.init.normal_(cell.state.bias)
    x, state = torch.randn(4, 3, 6), torch.randn(4, 3, 5)
    got = cell(cell.project(x), state)
    for agent in range(3):
        oracle = nn.GRUCell(6, 5)
        oracle.load_state_dict(
            {
                "weight_ih": cell.input.weight[agent],
                "weight_hh": cell.state.weight[agent],
                "bias_ih": cell.input.bias[agent],
                "bias_hh": cell.state.bias[agent],
            }
        )
        torch.testing.assert_close(got[:, agent], oracle(x[:, agent], state[:, agent]))


@pytest.mark.parametrize("shared", [True, False])
def test_a_sequence_equals_its_steps_and_restarts_at_resets(shared: bool) -> None:
    network = GRUConfig(share_parameters=shared, hidden=(7,), recurrent_size=5).build(3, InputSpec(((6,),)), 2)
    x, entering = torch.randn(4, 9, 3, 6), torch.randn(4, 3, 1, 5)
    is_init = torch.rand(4, 9) < 0.3
    outputs, states = network.sequence(x, entering, is_init)
    assert states is not None
    state = entering
    for t in range(9):
        state = torch.where(is_init[:, t, None, None, None], 0.0, state)
        output, state = network(x[:, t], state)
        torch.testing.assert_close(outputs[:, t], output)
        torch.testing.assert_close(states[:, t], state)


def test_no_state_means_the_zero_state() -> None:
    network = GRUConfig().build(3, InputSpec(((6,),)), 2)
    x = torch.randn(4, 3, 6)
    assert torch.equal(network(x)[0], network(x, torch.zeros(4, 3, 1, 64))[0])


@pytest.mark.parametrize("n_envs", [50, 400])
@pytest.mark.parametrize("units", [32, 128])
@pytest.mark.parametrize("shared", [True, False])
def test_fast_training_changes_neither_outputs_nor_gradients(shared: bool, units: int, n_envs: int) -> None:
    network = MLPConfig(share_parameters=shared, hidden=(units, units)).build(3, InputSpec(((6,),)), 2)
    x = torch.randn(n_envs, 3, 6, requires_grad=True)

    def outcome() -> list[torch.Tensor]:
        output = network(x)[0]
        return [output, *torch.autograd.grad(output.square().sum(), [x, *network.parameters()])]

    plain = outcome()
    with fast_training(network), patch("torch.get_num_threads", return_value=2):
        fast = outcome()
    for ours, expected in zip(fast, plain):
        torch.testing.assert_close(ours, expected, atol=4e-7 * n_envs, rtol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(outcome(), plain))


def test_fast_training_computes_large_products_by_fast_linear() -> None:
    network = MLPConfig(hidden=(8, 8)).build(3, InputSpec(((6,),)), 2)
    with patch("marlnb.models.networks.layers.fast_linear", wraps=fast_linear) as large:
        with fast_training(network), patch("torch.get_num_threads", return_value=1):
            network(torch.randn(400, 3, 6))
        assert not large.called
    two_threads = patch("torch.get_num_threads", return_value=2)
    with two_threads, patch("marlnb.models.networks.layers.fast_linear", wraps=fast_linear) as large:
        network(torch.randn(400, 3, 6))
        assert not large.called
        with fast_training(network):
            network(torch.randn(50, 3, 6))
            assert not large.called
            network(torch.randn(400, 3, 6))
    assert [call.kwargs.get("tanh", False) for call in large.call_args_list] == [True, True, False]


def test_fast_training_ends_with_an_exception() -> None:
    network = MLPConfig().build(3, InputSpec(((6,),)), 2)
    with pytest.raises(RuntimeError), fast_training(network):
        raise RuntimeError
    assert not any(getattr(module, "fast", False) for module in network.modules())


def test_layer_normalisation_comes_before_the_nonlinearity() -> None:
    network = MLPConfig(hidden=(8,), layer_norm=True).build(3, InputSpec(((6,),)), 2)
    x = torch.randn(4, 3, 6)
    layer = network.hidden[0]  # type: ignore[index, union-attr]
    affine = x @ layer.linear.weight.T + layer.linear.bias
    mean, variance = affine.mean(-1, keepdim=True), affine.var(-1, correction=0, keepdim=True)
    torch.testing.assert_close(layer(x), torch.tanh((affine - mean) / (variance + 1e-5).sqrt()))


def test_an_unknown_activation_names_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="tanh"):
        activation("tahn")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"hidden\[0\] must be at least 1"):
        MLPConfig(hidden=(0,)).build(3, InputSpec(((6,),)), 2)

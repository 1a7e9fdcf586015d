from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from marlnb.models.networks.configs.recurrent import LSTMConfig
from marlnb.models.networks.recurrent import LSTM, AgentLSTMCell
from marlnb.specs import InputSpec


def as_torchs(weight: Tensor, units: int) -> Tensor:
    """Gates forget, candidate, input, output in torch's order: input, forget, candidate, output."""
    keep, candidate, write, show = weight.split(units)
    return torch.cat((write, keep, candidate, show))


def oracle_of(cell: AgentLSTMCell, agent: int | None, in_features: int) -> nn.LSTM:
    oracle = nn.LSTM(in_features, cell.units, batch_first=True)
    own = slice(None) if agent is None else agent
    parameters = {
        "weight_ih_l0": cell.input.weight[own],
        "weight_hh_l0": cell.state.weight[own],
        "bias_ih_l0": cell.input.bias[own],
        "bias_hh_l0": cell.state.bias[own],
    }
    oracle.load_state_dict({key: as_torchs(value, cell.units) for key, value in parameters.items()})
    return oracle


@pytest.mark.parametrize("shared", [True, False])
def test_a_sequence_equals_torchs_lstm_for_each_agent(shared: bool) -> None:
    network = LSTMConfig(share_parameters=shared, hidden=(), recurrent_size=5).build(3, InputSpec(((6,),)), 2)
    assert isinstance(network, LSTM)
    nn.init.normal_(network.lstm.state.bias)
    x, entering = torch.randn(4, 9, 3, 6), torch.randn(4, 3, 2, 5)
    outputs, states = network.sequence(x, entering, torch.zeros(4, 9, dtype=torch.bool))
    assert states is not None and states.shape == (4, 9, 3, 2, 5)
    for agent in range(3):
        oracle = oracle_of(network.lstm, None if shared else agent, 6)
        hidden, cell = (part[None].contiguous() for part in entering[:, agent].unbind(-2))
        shown, (last_hidden, last_cell) = oracle(x[:, :, agent], (hidden, cell))
        torch.testing.assert_close(states[:, :, agent, 0], shown)
        torch.testing.assert_close(states[:, -1, agent, 0], last_hidden[0])
        torch.testing.assert_close(states[:, -1, agent, 1], last_cell[0])
        weight, bias = network.head.weight, network.head.bias
        expected = shown @ (weight if shared else weight[agent]).T + (bias if shared else bias[agent])
        torch.testing.assert_close(outputs[:, :, agent], expected)


def test_the_forget_gate_starts_open() -> None:
    cell = AgentLSTMCell(3, 6, 5, shared=False)
    assert (cell.input.bias[:, :5] == 1).all() and (cell.input.bias[:, 5:] == 0).all()
    assert (cell.state.bias == 0).all()


def test_the_sites_are_the_state_that_leaves() -> None:
    network = LSTMConfig(hidden=(4,), recurrent_size=5).build(3, InputSpec(((6,),)), 2)
    seen: dict[str, Tensor] = {}
    for layer, module, _, _ in network.site_modules():
        module.register_forward_hook(lambda module, inputs, output, layer=layer: seen.update({layer: output}))
    _, state = network(torch.randn(4, 3, 6), torch.randn(4, 3, 2, 5))
    assert state is not None
    assert torch.equal(state[..., 0, :], seen["lstm"]) and torch.equal(state[..., 1, :], seen["cell"])
    assert network.recurrent_shape == (2, 5)

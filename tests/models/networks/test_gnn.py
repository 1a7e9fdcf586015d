from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from marlnb.errors import ConfigError
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.gnn import GNN, GATv2, GraphConv, nearest_others
from marlnb.specs import InputSpec

VECTOR = InputSpec(((6,),))


def of_agent(parameter: Tensor, agent: int, share: bool) -> Tensor:
    return parameter if share else parameter[agent]


@pytest.mark.parametrize("share", [True, False])
def test_gatv2_by_hand(share: bool) -> None:
    """Brody et al. 2022, equations 1 and 7, edge by edge; agent 0 does not hear agent 2."""
    layer = GATv2(3, 6, 4, "tanh", heads=2, shared=share)
    for module in (layer.own, layer.heard, layer.hearing):
        torch.nn.init.normal_(module.bias)
    graph = torch.tensor([[False, True, False], [True, False, True], [True, True, False]])
    x = torch.randn(3, 6)
    output = layer(x, graph)
    for i in range(3):
        heard_by_i = [j for j in range(3) if j == i or graph[i, j]]
        parts = []
        for head in range(2):
            units = slice(2 * head, 2 * head + 2)
            scores, messages = [], []
            for j in heard_by_i:
                message = of_agent(layer.heard.weight, j, share) @ x[j] + of_agent(layer.heard.bias, j, share)
                hearing = of_agent(layer.hearing.weight, i, share) @ x[i] + of_agent(layer.hearing.bias, i, share)
                score = of_agent(layer.edges.score, i, share)[head]
                scores.append(score @ F.leaky_relu(message[units] + hearing[units], 0.2))
                messages.append(message[units])
            weights = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
            parts.append(sum(weight * message for weight, message in zip(weights, messages)))
        own = of_agent(layer.own.weight, i, share) @ x[i] + of_agent(layer.own.bias, i, share)
        torch.testing.assert_close(output[i], torch.tanh(own + torch.cat(parts)))  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [True, False])
def test_graph_convolution_by_hand(share: bool) -> None:
    """Morris et al. 2019, equation 5."""
    layer = GraphConv(3, 6, 4, "tanh", shared=share)
    graph = torch.tensor([[False, True, False], [True, False, True], [False, False, False]])
    x = torch.randn(3, 6)
    own = [of_agent(layer.own.weight, i, share) @ x[i] for i in range(3)]
    messages = [of_agent(layer.heard.weight, j, share) @ x[j] for j in range(3)]
    expected = torch.stack((own[0] + messages[1], own[1] + messages[0] + messages[2], own[2]))
    torch.testing.assert_close(layer(x, graph), torch.tanh(expected))


@pytest.mark.parametrize("messages", ["gatv2", "graph"])
def test_agents_in_another_order_have_their_outputs_in_that_order(messages: str) -> None:
    network = GNNConfig(messages=messages, rounds=(8, 8)).build(4, VECTOR, 2)  # type: ignore[arg-type]
    x, order = torch.randn(5, 4, 6), [2, 0, 3, 1]
    torch.testing.assert_close(network(x[:, order])[0], network(x)[0][:, order])


def test_neighbours_are_the_nearest_by_position() -> None:
    position = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [3.0, 0.5]]])
    expected = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert nearest_others(position, 1)[0].int().tolist() == expected
    assert nearest_others(position, 2)[0, 0].tolist() == [False, True, True, False]
    assert nearest_others(torch.zeros(3, 2), 1).int().tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]  # ties: the first


@pytest.mark.parametrize("messages", ["gatv2", "graph"])
def test_an_agent_hears_its_nearest_alone(messages: str) -> None:
    config = GNNConfig(messages=messages, n_neighbors=1, positions=(2, 3))  # type: ignore[arg-type]
    network = config.build(4, VECTOR, 2)
    assert isinstance(network, GNN) and network.cross_agent
    x = torch.randn(4, 6)
    x[:, 2:4] = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [3.0, 0.5]])
    x.requires_grad_()
    for agent, hears in enumerate(((0, 1), (0, 1), (2, 3), (2, 3))):
        (gradient,) = torch.autograd.grad(network(x)[0][agent].sum(), x)
        assert tuple(gradient.abs().sum(-1).nonzero()[:, 0].tolist()) == hears


def test_the_edges_are_a_site_whose_weights_add_up_to_one() -> None:
    network = GNNConfig(heads=2, rounds=(8,)).build(3, VECTOR, 2)
    assert [site[0] for site in network.site_modules()] == ["hidden_1", "edges_1", "messages_1", "head"]
    captured: list[Tensor] = []
    network.site_modules()[1][1].register_forward_hook(lambda module, inputs, output: captured.append(output))
    network(torch.randn(5, 3, 6))
    assert captured[0].shape == (5, 3, 6)
    torch.testing.assert_close(captured[0].unflatten(-1, (2, 3)).sum(-1), torch.ones(5, 3, 2))


def test_unsupported_options_are_errors() -> None:
    with pytest.raises(ConfigError, match="critic=mlp"):
        GNNConfig().build(1, InputSpec(((6,), (6,))), 2)
    with pytest.raises(ConfigError, match="both n_neighbors and positions"):
        GNNConfig(n_neighbors=2)
    with pytest.raises(ConfigError, match="observations have 0 to 5"):
        GNNConfig(n_neighbors=1, positions=(0, 6)).build(3, VECTOR, 2)
    with pytest.raises(ConfigError, match="heads=4 must divide"):
        GNNConfig(rounds=(6,))
    alone = GNNConfig().build(1, VECTOR, 2)
    assert alone(torch.randn(5, 1, 6))[0].shape == (5, 1, 2) and not alone.cross_agent

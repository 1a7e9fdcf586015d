from __future__ import annotations

import pytest
import torch
from torch import nn

from marlnb.errors import ConfigError
from marlnb.models.networks.attention import SelfAttention
from marlnb.models.networks.configs.attention import AttentionConfig
from marlnb.specs import InputSpec


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("heads", [1, 4])
def test_it_equals_torchs_multihead_attention_for_each_agent(share: bool, heads: int) -> None:
    attention = SelfAttention(3, 5, 8, heads, shared=share)
    nn.init.normal_(attention.projection.bias)
    nn.init.normal_(attention.attended.output.bias)
    captured = {}
    attention.weights.register_forward_hook(lambda module, inputs, output: captured.update(weights=output))
    x = torch.randn(6, 3, 5, 8)
    output = attention(x.flatten(2)).unflatten(-1, (5, 8))
    for agent in range(3):
        own = slice(None) if share else agent
        oracle = nn.MultiheadAttention(8, heads, batch_first=True)
        oracle.load_state_dict(
            {
                "in_proj_weight": attention.projection.weight[own],
                "in_proj_bias": attention.projection.bias[own],
                "out_proj.weight": attention.attended.output.weight[own],
                "out_proj.bias": attention.attended.output.bias[own],
            }
        )
        seen = x[:, agent]
        expected, weights = oracle(seen, seen, seen, average_attn_weights=False)
        torch.testing.assert_close(output[:, agent], seen + expected)
        torch.testing.assert_close(captured["weights"][:, agent].unflatten(-1, (heads, 5, 5)), weights)


def test_rows_may_come_in_any_order_and_the_weights_follow_them() -> None:
    network = AttentionConfig(units=8, heads=2).build(3, InputSpec(((4, 6),)), 2)
    assert [site[0] for site in network.site_modules()] == [
        "entity",
        "attention",
        "attended",
        "pooled",
        "hidden_1",
        "head",
    ]
    captured = []
    {site[0]: site[1] for site in network.site_modules()}["attention"].register_forward_hook(
        lambda module, inputs, output: captured.append(output.unflatten(-1, (2, 4, 4)))
    )
    rows, order = torch.randn(8, 3, 4, 6), [2, 0, 3, 1]
    torch.testing.assert_close(network(rows.flatten(2))[0], network(rows[:, :, order].flatten(2))[0])
    torch.testing.assert_close(captured[0][..., order, :][..., order], captured[1])
    torch.testing.assert_close(captured[0].sum(-1), torch.ones(8, 3, 2, 4))


def test_entities_of_several_kinds_look_at_one_another() -> None:
    inputs = InputSpec(((5,), (5,), (2, 4), (3,)))
    network = AttentionConfig(units=8, heads=2).build(1, inputs, 4)
    assert [site[:1] + site[2:3] for site in network.site_modules()][:4] == [
        ("set_1/entity", 16),
        ("set_2/entity", 16),
        ("attention", 2 * 4 * 4),
        ("attended", 4 * 8),
    ]
    x = torch.randn(8, 1, inputs.features)
    parts = x.split(inputs.sizes, dim=-1)
    rows = parts[2].unflatten(-1, (2, 4)).flip(-2).flatten(-2)
    torch.testing.assert_close(network(x)[0], network(torch.cat((parts[1], parts[0], rows, parts[3]), dim=-1))[0])


def test_unsupported_options_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"reads entities.*\(6,\)"):
        AttentionConfig().build(3, InputSpec(((6,),)), 2)
    with pytest.raises(ConfigError, match="heads=3 must divide units=8"):
        AttentionConfig(units=8, heads=3)

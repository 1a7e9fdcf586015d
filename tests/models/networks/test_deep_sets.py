from __future__ import annotations

import pytest
import torch

from marlnb.errors import ConfigError
from marlnb.models.networks.configs.deep_sets import DeepSetsConfig
from marlnb.models.networks.deep_sets import DeepSets
from marlnb.models.networks.entities import find_entities
from marlnb.models.policies.q_critic import QCritic, joint_q_input_spec
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, InputSpec, ObservationSpec


@pytest.mark.parametrize("pooling", ["mean", "sum", "max"])
@pytest.mark.parametrize("share", [True, False])
def test_it_is_a_function_of_the_pooled_entities_by_hand(pooling: str, share: bool) -> None:
    config = DeepSetsConfig(share_parameters=share, entity_hidden=(5,), hidden=(7,), pooling=pooling)  # type: ignore[arg-type]
    network = config.build(3, InputSpec(((4, 6), (2,))), 2)
    assert isinstance(network, DeepSets)
    rows, rest = torch.randn(8, 3, 4, 6), torch.randn(8, 3, 2)
    output = network(torch.cat((rows.flatten(2), rest), dim=-1))[0]
    phi, rho, head = network.sets[0].layers[0].layer.linear, network.hidden[0].linear, network.head  # type: ignore[index, union-attr]
    for agent in range(3):
        weight = [m.weight if share else m.weight[agent] for m in (phi, rho, head)]  # type: ignore[union-attr, index]
        entities = torch.tanh(rows[:, agent] @ weight[0].T)  # biases start at zero
        pooled = {"mean": entities.mean(1), "sum": entities.sum(1), "max": entities.max(1).values}[pooling]
        hidden = torch.tanh(torch.cat((pooled, rest[:, agent]), dim=-1) @ weight[1].T)
        torch.testing.assert_close(output[:, agent], hidden @ weight[2].T)


def test_rows_may_come_in_any_order() -> None:
    network = DeepSetsConfig().build(3, InputSpec(((4, 6),)), 2)
    rows = torch.randn(8, 3, 4, 6)
    shuffled = rows[:, :, [2, 0, 3, 1]]
    torch.testing.assert_close(network(rows.flatten(2))[0], network(shuffled.flatten(2))[0])
    assert not torch.allclose(network(rows.flatten(2))[0], network(rows.flip(-1).flatten(2))[0])


def test_the_equal_parts_of_a_joint_input_are_entities() -> None:
    """Three wolves with 5 features, two sheep with 4, one shepherd with 3, and the state of 2."""
    inputs = InputSpec(((5,), (5,), (5,), (4,), (4,), (3,), (2,)))
    network = DeepSetsConfig(entity_hidden=(6,)).build(1, inputs, 4)
    assert [site[0] for site in network.site_modules()][:4] == [
        "set_1/entity_1",
        "set_1/pooled",
        "set_2/entity_1",
        "set_2/pooled",
    ]
    assert [site[2] for site in network.site_modules()][:4] == [18, 6, 12, 6]
    x = torch.randn(8, 1, inputs.features)
    parts = list(x.split(inputs.sizes, dim=-1))
    swapped = torch.cat([parts[k] for k in (2, 0, 1, 4, 3, 5, 6)], dim=-1)
    torch.testing.assert_close(network(x)[0], network(swapped)[0])
    for part in range(7):  # and each is seen
        changed = parts.copy()
        changed[part] = changed[part] + 1
        assert not torch.allclose(network(x)[0], network(torch.cat(changed, dim=-1))[0])


def test_observations_a_state_and_actions_of_one_length_are_no_set() -> None:
    """Two agents observe 3 features and have 3 components of action, and the state has 3."""
    action = ActionSpec("continuous", low=(-1.0,) * 3, high=(1.0,) * 3)
    agents = GroupSpec("a", ("a_0", "a_1"), ObservationSpec((3,)), action)
    inputs = joint_q_input_spec(EnvSpec("test/equal", (agents,), state_shape=(3,)))
    sets, rest = find_entities("deep_sets", inputs)
    assert [(part.columns.spans, part.n, part.size) for part in sets] == [([(0, 6)], 2, 3), ([(9, 15)], 2, 3)]
    assert rest.spans == [(6, 9)]
    with pytest.raises(ConfigError, match="reads entities"):
        QCritic(agents, EnvSpec("test/equal", (agents,)), DeepSetsConfig(), centralised=False)


def test_the_agents_id_is_no_entity() -> None:
    """Though it is as long as the parts are."""
    network = DeepSetsConfig(agent_id=True, entity_hidden=(6,)).build(3, InputSpec(((3,), (3,))), 4)
    assert [site[2] for site in network.site_modules()][:2] == [2 * 6, 6]


def test_unsupported_inputs_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"reads entities.*\(6,\)"):
        DeepSetsConfig().build(3, InputSpec(((6,),)), 2)
    with pytest.raises(ConfigError, match="model=cnn"):
        DeepSetsConfig().build(3, InputSpec(((8, 8, 3),)), 2)
    with pytest.raises(ConfigError, match="entity_hidden"):
        DeepSetsConfig(entity_hidden=())

"""What every registered network must hold to; one that is registered is tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from marlnb.codec import from_json, to_json
from marlnb.config import MODELS, ModelConfig
from marlnb.errors import ConfigError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.building.build_network import network_problems
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.networks.network import Network
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, InputSpec, ObservationSpec

N_AGENTS = 3
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (7, 5)},
    "gru": {"hidden": (7,), "recurrent_size": 4},
    "lstm": {"hidden": (7,), "recurrent_size": 4},
    "cnn": {"channels": (3, 4), "kernels": (3, 2), "strides": (2, 1), "hidden": (6,), "conv_activation": "tanh"},
    "deep_sets": {"entity_hidden": (5,), "hidden": (6,)},
    "attention": {"units": 4, "heads": 2, "hidden": (6,)},
    "gnn": {"hidden": (6,), "rounds": (4, 4), "heads": 2},
    "sequence": {
        "models": (MLPConfig(hidden=(5,)), GRUConfig(hidden=(), recurrent_size=4), GRUConfig(recurrent_size=3)),
        "widths": (4,),
    },
}
SHAPES: tuple[tuple[int, ...], ...] = ((6,), (4, 3), (8, 7, 2))
CASES = [(name, share) for name in MODELS.names() for share in (True, False)]


def make(name: str, *, share: bool = True, **options: Any) -> ModelConfig:
    return MODELS.get(name)(share_parameters=share, **(SMALL.get(name, {}) | options))


def observed(config: ModelConfig) -> tuple[int, ...]:
    """A shape of observations that this kind of network reads."""
    for shape in SHAPES:
        try:
            config.build(N_AGENTS, InputSpec((shape,)), 2)
        except ConfigError:
            continue
        return shape
    raise AssertionError(f"{config.name} reads none of {SHAPES}")


def build(config: ModelConfig, n_agents: int = N_AGENTS) -> Network:
    torch.manual_seed(5)
    network = config.build(n_agents, InputSpec((observed(config),)), 2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network


def policy_of(config: ModelConfig) -> tuple[ActorCritic, Tensor]:
    torch.manual_seed(5)
    seen = ObservationSpec(observed(config))
    group = GroupSpec("bob", ("bob_0", "bob_1", "bob_2"), seen, ActionSpec("discrete", (5,)))
    policy = ActorCritic(group, EnvSpec("test", (group,)), config, MLPConfig())
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return policy, torch.randn(4, N_AGENTS, *seen.shape)


def fired(network: Network, run: Callable[[], Any]) -> list[tuple[str, Tensor]]:
    """What each site put out, in order."""
    activations: list[tuple[str, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda module, inputs, output, layer=layer: activations.append((layer, output)))
        for layer, module, _, _ in network.site_modules()
    ]
    run()
    for hook in hooks:
        hook.remove()
    return activations


@pytest.mark.parametrize(("name", "share"), CASES)
def test_every_site_fires_once_in_order_with_an_agent_axis(name: str, share: bool) -> None:
    network = build(make(name, share=share))
    x = torch.randn(2, 4, N_AGENTS, network.in_features)
    output, recurrent = network(x)
    assert output.shape == (2, 4, N_AGENTS, 2)
    assert (recurrent is None) == (network.recurrent_shape is None)
    if recurrent is not None:
        assert recurrent.shape == (2, 4, N_AGENTS, *network.recurrent_shape)  # type: ignore[misc]
    activations = fired(network, lambda: network(x))
    assert [(layer, activation.shape) for layer, activation in activations] == [
        (layer, (2, 4, N_AGENTS, n_units)) for layer, _, n_units, _ in network.site_modules()
    ]
    assert network.site_modules()[-1][3] == "head" and torch.equal(activations[-1][1], output)
    config = make(name, share=share)
    assert not list(network_problems(config, network, N_AGENTS, network.in_features, 2))
    assert [kind for *_, kind in network.site_modules()].count("head") == 1
    named = [layer for layer, *_ in network.site_modules()]
    assert len(set(named)) == len(named)
    assert named == [layer for layer, *_ in build(make(name, share=not share)).site_modules()]


@pytest.mark.parametrize(("name", "share"), [case for case in CASES if not build(make(case[0])).cross_agent])
def test_each_agent_is_as_it_would_be_alone(name: str, share: bool) -> None:
    network = build(make(name, share=share))
    x = torch.randn(4, N_AGENTS, network.in_features)
    together = dict(fired(network, lambda: network(x)))
    for agent in range(N_AGENTS):
        alone = build(make(name, share=share), n_agents=1)
        shapes = {key: value.shape for key, value in alone.state_dict().items()}
        weights = {
            key: value if value.shape == shapes[key] else value[agent : agent + 1]
            for key, value in network.state_dict().items()
        }
        alone.load_state_dict(weights)
        for layer, activation in fired(alone, lambda: alone(x[:, agent : agent + 1])):  # noqa: B023
            torch.testing.assert_close(together[layer][:, agent], activation[:, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "share"), CASES)
def test_a_network_states_whether_agents_read_one_another(name: str, share: bool) -> None:
    network = build(make(name, share=share))
    x = torch.randn(N_AGENTS, network.in_features, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(x)[0][0].sum(), x)
    assert gradient[0].abs().sum() > 0
    assert bool((gradient[1:].abs().sum(-1) > 0).all()) == network.cross_agent
    assert bool((gradient[1:] != 0).any()) == network.cross_agent


@pytest.mark.parametrize(("name", "share"), CASES)
def test_a_sequence_equals_its_steps(name: str, share: bool) -> None:
    """Restarted where an episode begins, held where an agent waits."""
    network = build(make(name, share=share))
    x, is_init = torch.randn(4, 9, N_AGENTS, network.in_features), torch.rand(4, 9) < 0.3
    acting = torch.rand(4, 9, N_AGENTS) < 0.6
    shape = network.recurrent_shape
    state = None if shape is None else torch.randn(4, N_AGENTS, *shape)
    if state is not None:  # what no network has ever written is no state: padding stays zero
        state = network(x[:, 0], torch.zeros_like(state))[1]
    outputs, states = network.sequence(x, state, is_init, acting)
    for t in range(9):
        if state is None:
            torch.testing.assert_close(outputs[:, t], network(x[:, t])[0])
            continue
        entering = torch.where(is_init[:, t, None, None, None], 0.0, state)
        output, leaving = network(x[:, t], entering)
        state = torch.where(acting[:, t, :, None, None], leaving, entering)
        assert states is not None
        torch.testing.assert_close(states[:, t], state)
        torch.testing.assert_close(outputs[:, t][acting[:, t]], output[acting[:, t]])


@pytest.mark.parametrize(("name", "share"), CASES)
def test_gradients_are_those_of_finite_differences(name: str, share: bool) -> None:
    network = build(make(name, share=share)).double()
    x = torch.randn(N_AGENTS, network.in_features, dtype=torch.float64, requires_grad=True)
    parameters = dict(network.named_parameters())

    def outcome(x: Tensor, *values: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(network, dict(zip(parameters, values)), (x,))[0]
        return output

    values = tuple(value.detach().requires_grad_() for value in parameters.values())
    assert torch.autograd.gradcheck(outcome, (x, *values), fast_mode=True)


@pytest.mark.parametrize(("name", "share"), CASES)
def test_an_edit_changes_what_follows_for_its_agent_alone(name: str, share: bool) -> None:
    policy, observation = policy_of(make(name, share=share))
    before = policy.act(observation, explore=False).logits
    for site in policy.sites():
        if "/actor/" not in site.name:
            continue
        edit = Ablate(site.name, agents=("bob_1",), value=0.7)
        with edited(policy, [edit]), capture(policy, site.name) as activations:
            after = policy.act(observation, explore=False).logits
        assert (activations[site.name][:, 1] == 0.7).all()
        if site.n_units > 1 or site.kind == "head":
            changed = (after != before).flatten(2).any(-1).any(0)
            assert bool(changed[1]), site.name
            assert not bool(changed[[0, 2]].any()) or policy.actor.network.cross_agent, site.name
    assert torch.equal(policy.act(observation, explore=False).logits, before)


@pytest.mark.parametrize(("name", "share"), CASES)
def test_integrated_gradients_add_up(name: str, share: bool) -> None:
    policy, observation = policy_of(make(name, share=share))
    method = IntegratedGradients(policy.actor)
    _, delta = method.attribute(observation, target=(1, 2), n_steps=400, return_convergence_delta=True)
    difference = (policy.actor(observation) - policy.actor(torch.zeros_like(observation)))[:, 1, 2]
    assert difference.abs().max() > 0.02
    assert delta.abs().max() < 0.05 * difference.abs().max()


@pytest.mark.parametrize("name", MODELS.names())
def test_an_agent_id_tells_apart_agents_that_share_weights(name: str) -> None:
    if "agent_id" not in {item.name for item in fields(MODELS.get(name))}:
        pytest.skip("a network from outside marlnb, without that option")
    plain, knowing = build(make(name)), build(make(name, agent_id=True))
    x = torch.randn(4, 1, plain.in_features).expand(4, N_AGENTS, plain.in_features)
    torch.testing.assert_close(plain(x)[0][:, 0], plain(x)[0][:, 1])
    output = knowing(x)[0]
    assert (output[:, 0] - output[:, 1]).abs().max() > 1e-3 and (output[:, 1] - output[:, 2]).abs().max() > 1e-3
    assert knowing.in_features == plain.in_features and knowing.recurrent_shape == plain.recurrent_shape
    assert [site[0] for site in knowing.site_modules()] == [site[0] for site in plain.site_modules()]
    with pytest.raises(ConfigError, match="share_parameters"):
        make(name, share=False, agent_id=True)
    alone = make(name, agent_id=True).build(1, InputSpec((observed(make(name)),)), 2)
    assert type(alone) is type(plain)


@pytest.mark.parametrize("name", MODELS.names())
def test_its_options_survive_a_file(name: str) -> None:
    for config in (make(name), MODELS.get(name)()):
        assert from_json(to_json(config), ModelConfig) == config
    assert replace(config) == config


@pytest.mark.parametrize("name", MODELS.names())
def test_the_heads_gain_is_left_to_the_actor(name: str) -> None:
    torch.manual_seed(5)
    config = make(name)
    head = config.build(N_AGENTS, InputSpec((observed(config),)), 2).site_modules()[-1][1]
    weight = getattr(head, "weight", None)
    if isinstance(head, nn.Module) and isinstance(weight, Tensor):
        torch.testing.assert_close(torch.linalg.matrix_norm(weight, 2), torch.tensor(1.0))

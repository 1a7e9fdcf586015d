"""Mixers against torchrl's, and against what makes them mixers: never falling where an agent's Q rises."""

from __future__ import annotations

import pytest
import torch
from torchrl.modules.models.multiagent import QMixer, VDNMixer

from marlnb.errors import ShapeError
from marlnb.models.hooks.capture import capture
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.mixers import MonotonicMixer, SumMixer
from marlnb.models.policies.q_policy import QPolicy
from marlnb.specs import EnvSpec
from tests.models.conftest import make_spec

STATE = (2, 5)


def make_mixer(state: tuple[int, ...] | None = STATE, hyper_units: int = 0) -> tuple[EnvSpec, MonotonicMixer]:
    torch.manual_seed(1)
    env = make_spec(state=state)
    return env, MonotonicMixer(env.group("walker"), env, 8, hyper_units)


def test_the_sum_is_torchrls() -> None:
    q = torch.randn(7, 4, 3)
    theirs = VDNMixer(n_agents=3, device="cpu").mix(q.unsqueeze(-1), torch.empty(0))
    torch.testing.assert_close(SumMixer()(q), theirs.squeeze(-1))


def test_the_mixture_is_torchrls_with_the_same_weights() -> None:
    _, mixer = make_mixer()
    theirs = QMixer(STATE, 8, 3, "cpu")
    maps = (theirs.hyper_w_1, theirs.hyper_b_1, theirs.hyper_w_final, theirs.V[0])
    with torch.no_grad():
        for linear, weight, bias in zip(
            maps, mixer.hyper.weight.split(mixer.sizes), mixer.hyper.bias.split(mixer.sizes)
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        theirs.V[2].load_state_dict(mixer.last_bias.state_dict())
    q, state = torch.randn(7, 4, 3), torch.randn(7, 4, *STATE)
    expected = theirs(q.unsqueeze(-1), state).squeeze(-1)
    torch.testing.assert_close(mixer(q, mixer.inputs({}, state)), expected)


@pytest.mark.parametrize("hyper_units", [0, 16])
def test_the_mixture_never_falls_where_an_agents_value_rises(hyper_units: int) -> None:
    _, mixer = make_mixer(hyper_units=hyper_units)
    q = (10 * torch.randn(500, 3)).requires_grad_()
    total = mixer(q, mixer.inputs({}, 5 * torch.randn(500, *STATE)))
    (slopes,) = torch.autograd.grad(total.sum(), q)
    assert (slopes >= 0).all() and (slopes > 0).any(0).all()


def test_with_a_layer_before_them_its_weights_stay_within_bounds_where_the_state_does_not() -> None:
    q = torch.ones(1, 3)
    for hyper_units, bounded in ((0, False), (16, True)):
        _, mixer = make_mixer(hyper_units=hyper_units)
        near, far = (mixer(q, mixer.inputs({}, torch.full((1, *STATE), size))).abs() for size in (1e3, 1e6))
        assert (far < 1.01 * near).item() is bounded


@pytest.mark.parametrize("hyper_units", [0, 16])
def test_its_weights_depend_on_the_state(hyper_units: int) -> None:
    _, mixer = make_mixer(hyper_units=hyper_units)
    q = torch.randn(1, 3).expand(2, 3).clone().requires_grad_()
    (slopes,) = torch.autograd.grad(mixer(q, mixer.inputs({}, torch.randn(2, *STATE))).sum(), q)
    assert not torch.allclose(slopes[0], slopes[1])


def test_without_a_state_it_reads_every_groups_observations(observations: dict[str, torch.Tensor]) -> None:
    env, mixer = make_mixer(state=None)
    assert mixer.reads == env.group_names and mixer.hyper.in_features == 3 * 6 + 2 * 8
    expected = torch.cat((observations["walker"].flatten(1), observations["other"].flatten(1)), 1)
    assert torch.equal(mixer.inputs(observations, None), expected)


def test_a_state_that_is_missing_says_so() -> None:
    _, mixer = make_mixer()
    with pytest.raises(ShapeError, match=r"mixer of 'walker' needs the environment's state"):
        mixer.inputs({}, None)


def test_its_hidden_layer_is_a_site_that_fires_with_the_value(observations: dict[str, torch.Tensor]) -> None:
    env, mixer = make_mixer(state=None)
    policy = QPolicy(env.group("walker"), MLPConfig(hidden=(16,)), mixer)
    names = [site.name for site in policy.sites()]
    assert names == ["walker/actor/hidden_1", "walker/actor/head", "walker/mixer/hidden"]
    with capture(policy, ["walker/mixer/hidden"]) as seen:
        total, _ = policy.value(observations)
    hidden = seen["walker/mixer/hidden"]
    assert hidden.shape == (4, 3, 8) and torch.equal(hidden[:, 0], hidden[:, 2])  # computed once, shown for each
    _, _, second, third = mixer.hyper(mixer.inputs(observations, None)).split(mixer.sizes, -1)
    by_hand = (hidden[:, 0] * second.abs()).sum(-1) + mixer.last_bias(third.relu())[:, 0]
    torch.testing.assert_close(total, by_hand.unsqueeze(-1).expand(4, 3))

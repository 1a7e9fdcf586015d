from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from captum.attr import DeepLift, IntegratedGradients
from torch import Tensor

from marlnb.errors import ShapeError
from marlnb.models.policies.actor import features
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec

CONTINUOUS = ActionSpec("continuous", low=(-1.0, -1.0), high=(1.0, 3.0))
MULTI = ActionSpec("multi_discrete", n=(3, 2))


@pytest.mark.parametrize("kind", ["mlp", "gru"])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("action", [ActionSpec("discrete", n=(5,)), MULTI, CONTINUOUS], ids=lambda a: a.kind)
def test_an_output_has_the_shapes_of_its_spec(
    kind: str,
    share: bool,
    action: ActionSpec,
    build_policy: Callable[..., ActorCritic],
    observations: dict[str, Tensor],
) -> None:
    policy = build_policy(kind, share=share, action=action)
    recurrent = policy.initial_recurrent(4, "cpu")
    output = policy.act(observations["walker"], recurrent=recurrent)
    assert output.action.shape == (4, 3, *action.shape)
    assert output.action.dtype == getattr(torch, action.dtype)
    assert output.log_prob.shape == (4, 3)
    width = 2 * action.n_components if action.kind == "continuous" else action.n_logits
    assert output.logits.shape == (4, 3, width)
    assert (output.recurrent is None) == (kind == "mlp")
    if recurrent is not None and output.recurrent is not None:
        assert output.recurrent.shape == recurrent.shape
    stored = output.extras.get("unsquashed_action", output.action)
    log_prob = policy.actor.distribution.log_prob(output.logits, stored)
    torch.testing.assert_close(log_prob, output.log_prob)


def test_a_fresh_policy_is_nearly_uniform(build_policy: Callable[..., ActorCritic], observations: dict) -> None:
    logits = build_policy().act(observations["walker"]).logits
    assert logits.softmax(-1).sub(0.2).abs().max() < 0.01


def test_not_exploring_takes_the_most_likely_allowed_action(
    build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    policy = build_policy()
    free = policy.act(observations["walker"], explore=False)
    mask = torch.ones(4, 3, 5, dtype=torch.bool).scatter_(-1, free.action.unsqueeze(-1), False)
    masked = policy.act(observations["walker"], action_mask=mask, explore=False)
    assert (masked.action != free.action).all()
    assert torch.equal(masked.action, free.logits.masked_fill(~mask, -torch.inf).argmax(-1))


def test_the_actor_is_a_module_of_observations(build_policy: Callable[..., ActorCritic], observations: dict) -> None:
    policy = build_policy(action=CONTINUOUS)
    assert torch.equal(policy.actor(observations["walker"]), policy.act(observations["walker"]).logits)


@pytest.mark.parametrize("kind", ["mlp", "gru"])
@pytest.mark.parametrize("share", [True, False])
def test_captum_explains_the_actor_and_finds_no_influence_across_agents(
    kind: str, share: bool, build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    policy = build_policy(kind, share=share)
    x = observations["walker"]
    attribution, delta = IntegratedGradients(policy.actor).attribute(
        x, baselines=torch.zeros_like(x), target=(1, 3), n_steps=50, return_convergence_delta=True
    )
    assert (attribution[:, 0] == 0).all() and (attribution[:, 2] == 0).all()
    change = policy.actor(x)[:, 1, 3] - policy.actor(torch.zeros_like(x))[:, 1, 3]
    torch.testing.assert_close(attribution.sum((1, 2)), change.detach(), atol=1e-5, rtol=1e-3)
    assert delta.abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:.*required_grads has been set:UserWarning")
@pytest.mark.filterwarnings("ignore:Setting forward, backward hooks:UserWarning")
@pytest.mark.parametrize("share", [True, False])
def test_deeplift_completes_on_the_mlp(
    share: bool, build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    policy = build_policy(share=share)
    x = observations["walker"]
    attribution = DeepLift(policy.actor).attribute(x, baselines=torch.zeros_like(x), target=(1, 3))
    change = policy.actor(x)[:, 1, 3] - policy.actor(torch.zeros_like(x))[:, 1, 3]
    torch.testing.assert_close(attribution.sum((1, 2)), change, atol=1e-5, rtol=1e-3)


def test_integrated_gradients_recover_a_planted_unit(
    build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    policy = build_policy(share=False)
    network, x = policy.actor.network, observations["walker"]
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.zero_()
        network.hidden[0].linear.weight[2, 7, 5] = 2.0  # type: ignore[index, union-attr]
        network.hidden[1].linear.weight[2, 1, 7] = 1.0  # type: ignore[index, union-attr]
        network.head.weight[2, 4, 1] = 3.0  # type: ignore[union-attr, index]
    expected = 3 * torch.tanh(torch.tanh(2 * x[:, 2, 5]))
    attribution = IntegratedGradients(policy.actor).attribute(x, target=(2, 4), n_steps=50)
    torch.testing.assert_close(attribution[:, 2, 5], expected, atol=2e-5, rtol=0)
    attribution[:, 2, 5] = 0
    assert (attribution == 0).all()


def test_values_are_in_units_of_reward(build_policy: Callable[..., ActorCritic], observations: dict) -> None:
    policy = build_policy()
    normalised, _ = policy.value(observations)
    policy.value_norm.update(torch.tensor([10.0, 14.0]))
    torch.testing.assert_close(policy.value(observations)[0], 12 + 2 * normalised)


def test_only_a_centralised_critic_reads_the_others(
    build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    changed = observations | {"other": observations["other"] + 1}
    for centralised in (False, True):
        policy = build_policy(centralised=centralised)
        same = torch.equal(policy.value(observations)[0], policy.value(changed)[0])
        assert same is not centralised


def test_a_centralised_critic_asks_for_the_state(build_policy: Callable[..., ActorCritic], observations: dict) -> None:
    with pytest.raises(ShapeError, match="state"):
        build_policy(centralised=True, state=(3,)).value(observations)


@pytest.mark.parametrize("share", [True, False])
def test_a_recurrent_critic_hands_on_a_state_for_each_agent(
    share: bool, build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    policy = build_policy("gru", share=share, centralised=True)
    assert policy.critic_recurrent_shape is not None
    entering = torch.zeros(4, 3, *policy.critic_recurrent_shape)
    value, leaving = policy.value(observations, recurrent=entering)
    assert value.shape == (4, 3) and leaving is not None and leaving.shape == entering.shape
    assert not torch.equal(policy.value(observations, recurrent=leaving)[0], value)


def test_features_flatten_scale_bytes_and_convert() -> None:
    bytes_ = torch.tensor([[[0, 255], [51, 0]]], dtype=torch.uint8)
    torch.testing.assert_close(features(bytes_, 2), torch.tensor([[0.0, 1.0, 0.2, 0.0]]))
    assert features(torch.ones(4, 3), 0).shape == (4, 3, 1)
    assert features(torch.ones(4, 3, dtype=torch.float64), 1).dtype == torch.float32


@pytest.mark.parametrize(
    ("std_of", "share", "shape"), [("parameter", True, (2,)), ("parameter", False, (3, 2)), ("network", True, None)]
)
def test_where_the_standard_deviation_comes_from(
    std_of: str,
    share: bool,
    shape: tuple[int, ...] | None,
    build_policy: Callable[..., ActorCritic],
    observations: dict,
) -> None:
    policy = build_policy(share=share, action=CONTINUOUS, std_of=std_of, initial_log_std=-0.5)
    own = policy.actor.log_std
    assert (None if own is None else tuple(own.shape)) == shape
    if own is not None:
        assert (policy.act(observations["walker"]).logits[..., 2:] == -0.5).all()

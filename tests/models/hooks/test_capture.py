"""Captured activations against forwards that are written out here, agent by agent, from the weights alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from marlnb.errors import SiteError
from marlnb.models.hooks.capture import capture
from marlnb.models.policies.actor_critic import ActorCritic

CASES = list(itertools.product(("mlp", "gru"), (True, False), (True, False)))


def forward_of_one_agent(weights: dict[str, Tensor], agent: int, x: Tensor, state: Tensor) -> dict[str, Tensor]:
    """Sites of agent `agent` for `x [env, feature]`, by layer name; weights by the network's parameter names."""

    def affine(name: str, value: Tensor) -> Tensor:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return value @ weight.T + bias if weight.ndim == 2 else value @ weight[agent].T + bias[agent]

    sites = {}
    for index in itertools.count():
        if f"hidden.{index}.linear.weight" not in weights:
            break
        x = torch.tanh(affine(f"hidden.{index}.linear", x))
        sites[f"hidden_{index + 1}"] = x
    if "gru.input.weight" in weights:
        given, kept = affine("gru.input", x).chunk(3, -1), affine("gru.state", state).chunk(3, -1)
        reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        x = (1 - update) * torch.tanh(given[2] + reset * kept[2]) + update * state
        sites["gru"] = x
    sites["head"] = affine("head", x)
    return sites


@pytest.mark.parametrize(("kind", "share", "centralised"), CASES)
def test_captured_activations_equal_a_written_out_forward(
    kind: str,
    share: bool,
    centralised: bool,
    build_policy: Callable[..., ActorCritic],
    observations: dict[str, Tensor],
) -> None:
    policy = build_policy(kind, share=share, centralised=centralised, state=(2, 3))
    state = torch.randn(4, 2, 3)
    recurrent = torch.randn(4, 3, 1, 8) if kind == "gru" else None
    with capture(policy) as activations:
        policy.act(observations["walker"], recurrent=recurrent)
        policy.value(observations, state=state, recurrent=recurrent)

    layers = ("hidden_1", "gru", "head") if kind == "gru" else ("hidden_1", "hidden_2", "head")
    assert list(activations) == [f"walker/{part}/{layer}" for part in ("actor", "critic") for layer in layers]
    everything = torch.cat([x.flatten(1) for x in (observations["walker"], observations["other"], state)], -1)
    for agent, part in itertools.product(range(3), ("actor", "critic")):
        weights = dict(getattr(policy, part).network.named_parameters())
        joint = part == "critic" and centralised
        row = 0 if joint and share else agent
        entering = torch.zeros(4, 8) if recurrent is None else recurrent[:, row, 0]
        x = everything if joint else observations["walker"][:, agent]
        for layer, expected in forward_of_one_agent(weights, agent, x, entering).items():
            site = activations[f"walker/{part}/{layer}"]
            assert site.shape[:2] == (4, 3) and not site.requires_grad
            torch.testing.assert_close(site[:, agent], expected)


def test_sites_agree_with_what_they_capture(build_policy: Callable[..., ActorCritic], observations: dict) -> None:
    policy = build_policy("gru", centralised=True)
    with capture({"walker": policy}, ["*/actor/*", "walker/critic/gru"]) as activations:
        policy.act(observations["walker"])
        policy.value(observations)
    sites = {site.name: site for site in policy.sites()}
    for name, activation in activations.items():
        assert activation.shape == (4, sites[name].n_agents, sites[name].n_units)
    assert set(activations) == {*(name for name in sites if "/actor/" in name), "walker/critic/gru"}


def test_capturing_changes_nothing_and_leaves_no_hook(
    build_policy: Callable[..., ActorCritic], observations: dict
) -> None:
    policy = build_policy()
    before = policy.act(observations["walker"], explore=False).logits
    with pytest.raises(KeyboardInterrupt), capture(policy, "*"):
        assert torch.equal(policy.act(observations["walker"], explore=False).logits, before)
        raise KeyboardInterrupt
    assert not any(module._forward_hooks for module in policy.modules())


def test_a_glob_without_a_site_raises_before_any_hook(build_policy: Callable[..., ActorCritic]) -> None:
    policy = build_policy()
    with pytest.raises(SiteError, match="walker/actor/hidden_1"), capture(policy, ["*/head", "walker/actor/hiden_1"]):
        pass
    assert not any(module._forward_hooks for module in policy.modules())

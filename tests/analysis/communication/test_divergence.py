"""Divergences of actions with several components, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.analysis.communication.divergence import divergence
from marlnb.analysis.data.rows import RowBatch
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec


def test_total_variation_is_the_mean_over_components_and_kl_their_sum() -> None:
    """Large weights make choices nearly certain, and the other observation turns them around: a sum exceeds 1."""
    group = GroupSpec("a", ("a_0",), ObservationSpec((1,)), ActionSpec("multi_discrete", n=(2, 3)))
    torch.manual_seed(0)
    policy = ActorCritic(group, EnvSpec("test", (group,)), MLPConfig(hidden=(4,)), MLPConfig(hidden=(4,))).eval()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(200)
    observation, other, once = torch.full((1, 1, 1), 1.0), torch.full((1, 1, 1, 1), -1.0), torch.ones(1, 1, 1)
    batch = RowBatch({"a": observation}, torch.zeros(1, 1, 2), torch.ones(1, 1, dtype=torch.bool))
    p, q = (policy.logits(x)[0][0, 0].double().detach() for x in (observation, other[0]))
    parts = [(a.softmax(-1).numpy(), b.softmax(-1).numpy()) for a, b in zip(p.split([2, 3]), q.split([2, 3]))]
    variation = [0.5 * np.abs(a - b).sum() for a, b in parts]
    assert sum(variation) > 1.2
    result = divergence(policy, batch, observation, other, once, "total_variation")[0].item()
    assert result == pytest.approx(np.mean(variation), abs=1e-5) and result <= 1
    kl = sum((a * np.log(a / ((b + a / 2) / 1.5))).sum() for a, b in parts)
    assert divergence(policy, batch, observation, other, once, "kl")[0].item() == pytest.approx(kl, rel=1e-4)


def test_a_forbidden_choice_has_no_part_in_a_divergence() -> None:
    """Without choice 2 the probabilities are (0.5, 0.5) at observation 0 and (0.9, 0.1) at 1."""
    group = GroupSpec("a", ("a_0",), ObservationSpec((1,)), ActionSpec("discrete", n=(3,)), has_action_mask=True)
    policy = ActorCritic(group, EnvSpec("test", (group,)), MLPConfig(hidden=()), MLPConfig(hidden=(4,))).eval()
    p, q = torch.tensor([0.5, 0.5, 9.0]).log(), torch.tensor([0.9, 0.1, 0.2]).log()
    with torch.no_grad():
        policy.actor.network.head.bias.copy_(p)  # type: ignore[union-attr, operator]
        policy.actor.network.head.weight[..., 0] = q - p  # type: ignore[union-attr, index, operator]
    observation, mask = torch.zeros(1, 1, 1), torch.tensor([[[True, True, False]]])
    batch = RowBatch({"a": observation}, torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), action_mask=mask)
    others = torch.stack([torch.ones(1, 1, 1), observation])
    weights = torch.tensor([3.0, 1.0]).view(2, 1, 1)
    value, changes = divergence(policy, batch, observation, others, weights, "total_variation")
    assert value.item() == pytest.approx(0.4 * 3 / 4, abs=1e-6)
    assert changes.flatten().tolist() == pytest.approx([0.4 * 3 / 16, -0.4 * 3 / 16], abs=1e-6)
    value, changes = divergence(policy, batch, observation, others, weights, "kl")
    q = (3 * np.array([0.9, 0.1]) + 1.5 * np.array([0.5, 0.5])) / 4.5
    assert value.item() == pytest.approx((0.5 * np.log(0.5 / q)).sum(), abs=1e-6) and changes.sum().abs() < 1e-12
    value, changes = divergence(policy, batch, observation, observation.expand(2, 1, 1, 1), weights, "kl")
    assert value.item() == 0 and (changes == 0).all()

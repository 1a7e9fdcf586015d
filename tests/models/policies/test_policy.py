"""Policies that act by another one have all of its properties."""

from __future__ import annotations

import pytest
import torch

from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.models.policies.deterministic_policy import DeterministicPolicy
from marlnb.models.policies.policy import Policy
from marlnb.models.policies.q_policy import QPolicy
from marlnb.models.policies.scripted import FrozenPolicy, RandomPolicy
from marlnb.models.policies.seated_policy import SeatedPolicy
from marlnb.models.policies.with_features import WithFeatures
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

PIXELS = GroupSpec("a", ("a_0", "a_1"), ObservationSpec((2, 2, 3), "uint8"), ActionSpec("discrete", (4,)))
MODEL = MLPConfig(hidden=(8,))
OF_EVERY_POLICY = {"act", "observe", "observation_site", "initial_recurrent", "noise_state", "reads"}
"""Those that are not the inner policy's."""


def with_features(policy: Policy) -> Policy:
    return WithFeatures(policy, "a/actor/hidden_1", SparseAutoencoder(8, 16, "topk", 4))


@pytest.mark.parametrize("kind", [WithFeatures, SeatedPolicy])
def test_nothing_of_a_policy_is_forgotten(kind: type[Policy]) -> None:
    public = {name for name, value in vars(Policy).items() if not name.startswith("_") and not isinstance(value, type)}
    attributes = {"greedy", "recurrent_shape", "critic_recurrent_shape"}  # set in __init__
    assert public - attributes - OF_EVERY_POLICY <= vars(kind).keys()


def test_a_policy_of_q_values_of_images_stays_one() -> None:
    policy = QPolicy(PIXELS, MODEL)
    pixels = torch.full((1, 2, 2, 2, 3), 255.0)
    seated = SeatedPolicy(PIXELS, [RandomPolicy(PIXELS), policy], [[0], [1]])
    for other in (with_features(policy), FrozenPolicy(PIXELS, policy), seated):
        assert other.greedy and other.scale_bytes(pixels).max() == 1
        expected, _ = policy.logits(policy.scale_bytes(pixels))
        assert torch.equal(other.logits(other.scale_bytes(pixels))[0][:, 1], expected[:, 1])


def test_a_seated_critic_reads_what_the_widest_of_its_members_reads() -> None:
    env = EnvSpec("x", (PIXELS,))
    narrow, wide = (ActorCritic(PIXELS, env, MODEL, MODEL, centralised=centralised) for centralised in (False, True))
    for policies, reads in (([narrow, narrow], "agent"), ([narrow, wide], "all")):
        assert SeatedPolicy(PIXELS, policies, [[0], [1]]).critic_reads == reads
        assert SeatedPolicy(PIXELS, policies, [[0], [1]]).reads(critic=False) == "agent"
    assert with_features(narrow).critic_reads == QPolicy(PIXELS, MODEL).critic_reads == "agent"


@pytest.mark.parametrize("is_gaussian_first", [True, False])
def test_seated_outputs_of_other_widths_are_filled_with_zeros(is_gaussian_first: bool) -> None:
    """A mean and a deviation next to an action alone, as in a match of PPO and DDPG; the modes are the actions."""
    group = GroupSpec("a", ("a_0", "a_1"), ObservationSpec((3,)), ActionSpec("continuous", low=(-1.0,), high=(3.0,)))
    gaussian = ActorCritic(group, EnvSpec("x", (group,)), MODEL, MODEL, centralised=False)
    certain = DeterministicPolicy(group, EnvSpec("x", (group,)), MODEL, MODEL, centralised=False, twins=False)
    policies = [gaussian, certain] if is_gaussian_first else [certain, gaussian]
    seated = SeatedPolicy(group, policies, [[0], [1]])
    observation = torch.randn(4, 2, 3)
    output = seated.act(observation, explore=False)
    logits, _ = seated.logits(observation)
    assert torch.equal(logits, output.logits) and logits.shape == (4, 2, 2)
    assert not logits[:, int(is_gaussian_first), 1].any()
    assert seated.distribution is not None
    assert torch.equal(seated.distribution.mode(logits).action, output.action)


def test_correlated_noise_begins_again_with_each_episode() -> None:
    group = GroupSpec("a", ("a_0", "a_1"), ObservationSpec((3,)), ActionSpec("continuous", low=(-1.0,), high=(1.0,)))
    policy = DeterministicPolicy(group, EnvSpec("x", (group,)), MODEL, MODEL, centralised=False, twins=False)
    policy.process = (0.15, 1.0)
    policy.noise.fill_(0.2)
    for other in (FrozenPolicy(group, policy), SeatedPolicy(group, [policy, RandomPolicy(group)], [[0], [1]])):
        other.act(torch.zeros(4, 2, 3))
        assert policy.noise_state is not None and policy.noise_state.all()
        other.begin_episodes(torch.tensor([True, False, True, False]))
        assert policy.noise_state.any(-1).any(-1).tolist() == [False, True, False, True]

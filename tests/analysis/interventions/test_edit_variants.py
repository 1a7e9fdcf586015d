"""Many edits at once change the same as each by itself, and progress counts them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.analysis.data.trajectories import evaluate_on, roll_out
from marlnb.analysis.interventions.edit_variants import logits_of_variants
from marlnb.config import ModelConfig
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.directions import Direction, Erase, Steer
from marlnb.models.hooks.edits import Ablate, Noise, Scale
from marlnb.models.hooks.edits_variants import variants
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.actor_critic import ActorCritic
from tests.recording.runs import LivesConfig


@pytest.mark.parametrize("model", [MLPConfig(hidden=(8,)), GRUConfig(hidden=(), recurrent_size=8)])
def test_each_variant_is_the_edit_by_itself(model: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    with LivesConfig().build(5) as env:
        policies = {g.name: ActorCritic(g, env.spec, model, MLPConfig(hidden=(4,))) for g in env.spec.groups}
        track = roll_out(env, policies, (), seed=0)
    site = policies["a"].sites()[0].name
    vectors = np.random.default_rng(0).standard_normal((5, 8))
    directions = [Direction(site, "a_1", tuple(v / np.linalg.norm(v)), 0.2, 0.5) for v in vectors]
    edits = [
        *(Steer(site, direction, 3.0, agents=("a_1",)) for direction in directions[:4]),
        Erase(site, tuple(directions[3:]), agents=("a_1",)),
    ]
    monkeypatch.setattr("marlnb.analysis.interventions.edit_variants.MAX_ROWS", 2 * track.in_episode.numel())
    together = list(logits_of_variants(policies["a"], track, edits))
    assert len(together) == len(edits)
    for edit, logits in zip(edits, together):
        alone = evaluate_on(policies, track, [edit], values=False, groups=["a"]).logits["a"]
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(logits[:, :, 1], track.logits["a"][:, :, 1], atol=1e-3)
    assert all(not module._forward_hooks for module in policies["a"].modules())


@pytest.mark.parametrize("model", [MLPConfig(hidden=(8,)), GRUConfig(hidden=(), recurrent_size=8)])
def test_numbers_in_all_parts_at_once_equal_each_edit_by_itself(model: ModelConfig) -> None:
    torch.manual_seed(0)
    with LivesConfig().build(5) as env:
        policies = {g.name: ActorCritic(g, env.spec, model, MLPConfig(hidden=(4,))) for g in env.spec.groups}
        track = roll_out(env, policies, (), seed=0)
    site = policies["a"].sites()[0].name
    edits = [
        Ablate(site, units=(2,)),
        Ablate(site, (0.5, -2.0), units=(1, 6), agents=("a_1",)),
        Scale(site, 3.0, agents=("a_0",)),
        Ablate(site, 1.5),
    ]
    for edit, logits in zip(edits, logits_of_variants(policies["a"], track, edits), strict=True):
        alone = evaluate_on(policies, track, [edit], values=False, groups=["a"]).logits["a"]
        torch.testing.assert_close(logits, alone, atol=1e-6, rtol=1e-6)
        assert not torch.equal(logits, track.logits["a"])


def test_parts_without_an_edit_and_kinds_that_are_not_linear() -> None:
    torch.manual_seed(0)
    with LivesConfig().build(2) as env:
        (group, *_) = env.spec.groups
        policy = ActorCritic(group, env.spec, MLPConfig(hidden=(8,)), MLPConfig(hidden=(4,)))
    site = policy.sites()[0].name
    observation = torch.randn(6, group.n_agents, group.observation.size)
    unedited = policy.logits(observation)[0]
    for second in (Ablate(site, units=(0, 3)), Noise(site, 1.0, units=(0, 3))):
        with edited(policy, [variants([None, second, None])]):
            logits = policy.logits(observation)[0]
        torch.testing.assert_close(logits[[0, 1, 4, 5]], unedited[[0, 1, 4, 5]])
        with edited(policy, [second]):
            torch.testing.assert_close(logits[2:4], policy.logits(observation[2:4])[0])

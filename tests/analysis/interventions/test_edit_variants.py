"""Many edits at once change the same as each by itself, and progress counts them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.analysis.data.trajectories import evaluate_on, roll_out
from marlnb.analysis.interventions.edit_variants import logits_of_variants
from marlnb.config import ModelConfig
from marlnb.models.hooks.directions import Direction, Erase, Steer
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

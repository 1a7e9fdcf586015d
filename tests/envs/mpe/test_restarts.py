"""Restarts by mask, as on a GPU, give the steps of lockstep, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.steps import differ, random_actions

SCENARIOS = [name for name in ENVIRONMENTS.names() if name.startswith("mpe/")]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SCENARIOS),
    ("mpe/simple_push", {"goal_steps": 2}),  # rows that count the observations of an episode
    ("mpe/simple_speaker_listener", {"goal_steps": 1}),
    ("mpe/simple_spread", {"terminate_on_success": True, "N": 1, "state": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_by_mask_equals_lockstep(name: str, options: dict[str, Any]) -> None:
    usual, masked = (ENVIRONMENTS.get(name)(max_cycles=3, **options).build(4) for _ in range(2))
    masked.restarts_by_mask = True
    first, second, generator = usual.reset(1), masked.reset(1), torch.Generator().manual_seed(0)
    for _ in range(10):
        actions = random_actions(usual, first, generator)
        first, second = usual.step(actions), masked.step(actions)
        assert not differ(first, second).any() and torch.equal(first.episode_seed, second.episode_seed)
    for label, value in usual.labels().items():
        assert torch.equal(masked.labels()[label], value), label

"""The disc game: the contract, rewards by hand, and what the observation does not say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.contract import check_vector_env


def test_the_contract() -> None:
    check_vector_env(lambda n_envs: ENVIRONMENTS.get("game/disc")().build(n_envs), episodes=20)


def test_rewards_by_hand() -> None:
    env = ENVIRONMENTS.get("game/disc")(directions=4, strength=0.5).build(3)
    step = env.reset(0)
    hidden = np.arctan2(*(env.labels()[name].numpy() for name in ("hidden_sin", "hidden_cos")))
    cos_u, sin_u, cos_v, sin_v = step.groups["player"].observation[:, 0].numpy().T
    assert np.cos(hidden) == pytest.approx(cos_u * cos_v - sin_u * sin_v, abs=1e-6)
    rewards = env.step({"player": torch.tensor([[1, 0], [0, 1], [2, 2]])}).groups["player"].reward.numpy()
    expected = [1, -1, 0] + 0.5 * np.array([1, -1, 0]) * (np.cos(np.pi / 2 - hidden) - np.cos(hidden))
    assert rewards[:, 0] == pytest.approx(expected, abs=1e-6) and (rewards.sum(1) == 0).all()


def test_no_linear_function_of_the_observation_says_anything_about_the_hidden_angle() -> None:
    env = ENVIRONMENTS.get("game/disc")().build(20_000)
    observed = env.reset(0).groups["player"].observation[:, 0].numpy()
    target = np.stack([env.labels()[name].numpy() for name in ("hidden_cos", "hidden_sin")], 1)
    fitted = observed @ np.linalg.lstsq(observed, target, rcond=None)[0]
    assert 1 - ((target - fitted) ** 2).sum() / (target**2).sum() < 0.002

"""The world of an MPE environment, and mpe2's environment in its state."""

from __future__ import annotations

from typing import Any

from marlnb.envs.mpe.rules import MPERules
from marlnb.envs.mpe.world import World
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv


def rules_of(env: TensorVectorEnv) -> MPERules:
    assert isinstance(env.rules, MPERules)
    return env.rules


def world_of(env: TensorVectorEnv) -> World:
    return rules_of(env).world(env.state)


def mpe2_of(env: TensorVectorEnv, index: int) -> Any:
    """mpe2's raw environment in the state of env `index`."""
    return rules_of(env).to_mpe2(env.state, index)

"""The games of tag, as they are registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from marlnb.config import ENVIRONMENTS
from marlnb.envs.tag.options import TagContinuousOptions, TagGridWorldOptions

if TYPE_CHECKING:
    from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv


@ENVIRONMENTS.register("tag/continuous")
@dataclass(frozen=True)
class TagContinuousConfig(TagContinuousOptions):
    """Taggers chase runners on a square. Each agent changes its acceleration and its direction.

    A runner that a tagger comes near is tagged and leaves the game. An agent observes the agents that are nearest.
    The rules are those of WarpDrive 2.7.1's Python environment; taggers are listed before runners.

    Source: Lan et al. 2021, WarpDrive (arXiv:2108.13976).
    """

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.device import check_device
        from marlnb.envs.tag.continuous import TagContinuous
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        return TensorVectorEnv(TagContinuous(self, device=check_device(device)), n_envs, device)


@ENVIRONMENTS.register("tag/gridworld")
@dataclass(frozen=True)
class TagGridWorldConfig(TagGridWorldOptions):
    """Taggers chase one runner from cell to cell; the first tag ends the episode, and all taggers are rewarded.

    The rules are those of WarpDrive 2.7.1's Python environment.
    """

    def build(self, n_envs: int, device: str = "cpu") -> TensorVectorEnv:
        from marlnb.envs.device import check_device
        from marlnb.envs.tag.gridworld import TagGridWorld
        from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv

        return TensorVectorEnv(TagGridWorld(self, check_device(device)), n_envs, device)

"""Settings of the comparisons on a GPU: Tag with WarpDrive, simple_spread with JaxMARL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.drivers.settings import Native


@dataclass(frozen=True)
class Tag:
    """WarpDrive's published Tag with 5 taggers, and A2C with 25 steps of each env in a batch."""

    n_envs: int
    hidden: tuple[int, ...]
    rollout_steps: int = 25

    @property
    def options(self) -> dict[str, Any]:
        """The environment's, with the names that both sides use."""
        return {
            "num_taggers": 5, "num_runners": 100, "grid_length": 20.0, "episode_length": 500,
            "max_acceleration": 0.1, "min_acceleration": -0.1, "max_turn": 2.356, "min_turn": -2.356,
            "num_acceleration_levels": 20, "num_turn_levels": 20, "skill_level_runner": 1.0, "skill_level_tagger": 1.0,
            "max_speed": 1.0, "use_full_observation": False, "runner_exits_game_after_tagged": True,
            "num_other_agents_observed": 10, "tag_reward_for_tagger": 10.0, "tag_penalty_for_runner": -10.0,
            "step_penalty_for_tagger": 0.0, "step_reward_for_runner": 0.0, "edge_hit_penalty": 0.0,
            "end_of_game_reward_for_runner": 1.0, "tagging_distance": 0.02,
        }  # fmt: skip


ON_GPU = {"8192x64": Native(n_envs=8192, minibatch_frames=8192 * 25 // 4)}
TAG = {f"{n_envs}x{units}": Tag(n_envs, (units, units)) for n_envs in (60, 2000) for units in (64, 256)}

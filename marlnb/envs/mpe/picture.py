"""One copy's state put into mpe2's own environment, which draws it, or goes on from it as a reference."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from marlnb.envs.mpe.env import MPE


class _Given:
    """Stands in for mpe2's random generator and hands out one copy's positions and choices in mpe2's order."""

    def __init__(self, positions: np.ndarray, choices: list[int]) -> None:
        self._positions, self._choices = iter(positions), iter(choices)

    def uniform(self, low: float, high: float, size: int) -> np.ndarray:
        return next(self._positions).copy()

    def integers(self, high: int) -> int:
        return next(self._choices)


def to_mpe2(env: MPE, index: int) -> Any:
    """mpe2's raw environment (`AECEnv`) in the state of copy `index`, ready for its next step."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    config, world = env.config, env.world
    raw = importlib.import_module(config.mpe2_module).raw_env(render_mode="rgb_array", **config.mpe2_options())
    stage = getattr(config, "curriculum_stage", 0)
    if stage:  # mpe2 1.1.1 cannot leave stage 0: its base class makes the attribute a property that drops every value
        raw.scenario.__class__ = type("Scenario", (type(raw.scenario),), {"curriculum_stage": stage})
    raw.reset()
    positions = world.position[:, :, index].t().double().cpu().numpy()
    redrawn = positions[len(positions) - env.scenario.redrawn :]
    choices = [int(world.choice[name][index]) for name in env.scenario.choices]
    raw.scenario.reset_world(raw.world, _Given(np.concatenate([positions, redrawn]), choices))
    for number, agent in enumerate(raw.world.agents):
        agent.state.p_vel = world.velocity[:, number, index].double().cpu().numpy().copy()
    for number, speaker in enumerate(env.scenario.speakers):
        raw.world.agents[speaker].state.c = world.message[number, :, index].double().cpu().numpy().copy()
    raw.original_cam_range = float(world.start_range[index])
    raw.steps = env.clock(index)
    return raw


def draw(env: MPE, index: int) -> np.ndarray:
    """Copy `index` as mpe2 draws it: `[height, width, 3]` uint8."""
    return np.ascontiguousarray(to_mpe2(env, index).render())

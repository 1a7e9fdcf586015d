"""Copies a state into mpe2's environment, to draw it or as a reference in tests.

Messages below a picture have the names of actions (`say_2`), as everywhere else; mpe2 itself writes "sends C".
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from marlnb.envs.mpe.scenario import MPEOptions, Scenario
from marlnb.envs.mpe.world import World

TEXT_SIZE = 32  # points, in bold: mpe2's 24 cannot be read in small pictures


class _FixedDraws:
    """Replaces mpe2's random generator, and returns one env's positions and choices in mpe2's order."""

    def __init__(self, positions: np.ndarray, choices: list[int]) -> None:
        self._positions, self._choices = iter(positions), iter(choices)

    def uniform(self, low: float, high: float, size: int) -> np.ndarray:
        return next(self._positions).copy()

    def integers(self, high: int) -> int:
        return next(self._choices)


def to_mpe2(config: MPEOptions, scenario: Scenario, world: World, index: int, clock: int) -> Any:
    """mpe2's raw environment (`AECEnv`) in the state of env `index`, ready for its next step.

    Args:
        clock: steps that the env has made in its current episode.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    raw = importlib.import_module(config.mpe2_module).raw_env(render_mode="rgb_array", **config.mpe2_options())
    stage = getattr(config, "curriculum_stage", 0)
    if stage:  # mpe2 1.1.1 cannot leave stage 0: its base class makes the attribute a property that drops every value
        raw.scenario.__class__ = type("Scenario", (type(raw.scenario),), {"curriculum_stage": stage})
    raw.reset()
    positions = world.position[:, :, index].t().double().cpu().numpy()
    redrawn = positions[len(positions) - scenario.n_redrawn :]
    choices = [int(world.choice[name][index]) for name in scenario.choices]
    raw.scenario.reset_world(raw.world, _FixedDraws(np.concatenate([positions, redrawn]), choices))
    for number, agent in enumerate(raw.world.agents):
        agent.state.p_vel = world.velocity[:, number, index].double().cpu().numpy().copy()
    for number, speaker in enumerate(scenario.speakers):
        raw.world.agents[speaker].state.c = world.message[number, :, index].double().cpu().numpy().copy()
    raw.original_cam_range = float(world.start_range[index])
    raw.steps = clock
    return raw


def draw(raw: Any, scenario: Scenario, world: World, index: int) -> np.ndarray:
    """mpe2's picture of `raw`, `[height 700, width 700, 3]` uint8, with the messages of env `index` below.

    Args:
        raw: mpe2's raw environment in the state of env `index` (`to_mpe2`).
    """
    import pygame
    from pygame import freetype

    speakers = [agent for agent in raw.world.agents if not agent.silent]
    for agent in speakers:
        agent.silent = True
    try:
        raw.draw()
    finally:
        for agent in speakers:
            agent.silent = False
    for line, text in enumerate(messages(scenario, world, index, raw.continuous_actions)):
        left, top = raw.width * 0.05, raw.height * (0.94 - 0.06 * line)
        raw.game_font.render_to(raw.screen, (left, top), text, (0, 0, 0), size=TEXT_SIZE, style=freetype.STYLE_STRONG)
    pixels = pygame.surfarray.array3d(raw.screen)  # [width, height, 3]
    return np.ascontiguousarray(pixels.transpose(1, 0, 2))


def messages(scenario: Scenario, world: World, index: int, continuous: bool) -> list[str]:
    """What each speaker said at the last step, which others observe now: `speaker_0: say_2`."""
    texts = []
    for number, speaker in enumerate(scenario.speakers):
        words = world.message[number, :, index].cpu().numpy()
        name = scenario.agents[speaker].name
        if not words.any():
            texts.append(f"{name}: silent")
        elif continuous:
            texts.append(f"{name}: " + ", ".join(f"say_{k} {word:.2f}" for k, word in enumerate(words)))
        else:
            texts.append(f"{name}: say_{int(words.argmax())}")
    return texts

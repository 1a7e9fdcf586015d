"""What an environment is like, determined by building one env: groups, spaces, a picture and a random episode."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from PIL import Image

from marlnb.config import EnvConfig
from marlnb.envs.regroup import Groups, build_grouped
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvError
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.specs import EnvSpec
from marlnb.training.collect.episodes import TimeStep, play
from marlnb.widgets.core.ui_lock import RENDER_LOCK

FRAME_MS = 90
MAX_HEIGHT = 260  # pixels of a picture


@dataclass(frozen=True)
class EnvPreview:
    """An environment at its start.

    Attributes:
        spec: its groups and spaces.
        picture: as PNG; empty if there is none.
        no_picture: why there is no picture; else empty.
    """

    spec: EnvSpec
    picture: bytes
    no_picture: str


def preview_env(env: EnvConfig, groups: Groups | None = None) -> EnvPreview:
    """Builds one env, resets it and takes a picture.

    Raises:
        ConfigError: the options are not valid.
        EnvError: the environment cannot be built with these options.
    """
    with RENDER_LOCK, _built(env, groups) as (built, no_picture):
        built.reset(0)
        try:
            return EnvPreview(built.spec, b"" if no_picture else _encode([built.render()], "PNG"), no_picture)
        except EnvError as error:
            return EnvPreview(built.spec, b"", str(error))


def play_random_episode(
    env: EnvConfig, groups: Groups | None = None, *, seed: int = 0, max_steps: int = 100
) -> tuple[bytes, dict[str, float]]:
    """An animated picture (GIF) of one episode of random actions, and each agent's return in it.

    Args:
        max_steps: a longer episode is cut off here.
    Returns:
        The GIF, which is empty if the environment has no pictures, and the returns by agent.
    Raises:
        EnvError: the environment cannot be built or stepped.
    """
    with RENDER_LOCK, _built(env, groups) as (built, no_picture):
        camera = _Camera(built, max_steps, draws=not no_picture)
        policies = {group.name: RandomPolicy(group) for group in built.spec.groups}
        try:
            table = play(built, policies, episodes=1, seed=seed, explore=True, callback=camera)
        except _MaxStepsReached:
            return _encode(camera.frames, "GIF"), camera.returns
        row = table.to_frame().iloc[0]
        returns = {agent: float(row[agent]) for agent in row.index if agent in built.spec.agents}
        return _encode(camera.frames, "GIF"), returns


@contextmanager
def _built(env: EnvConfig, groups: Groups | None) -> Iterator[tuple[VectorEnv, str]]:
    """One env, built with rendering if it has that option, and why it has no picture (empty if it has)."""
    no_picture = ""
    drawn = any(item.name == "render" for item in fields(env))
    try:
        built = build_grouped(replace(env, render=True) if drawn else env, groups, 1)  # type: ignore[call-arg]
    except EnvError as error:  # an environment of the user need not have PettingZoo's render_mode
        built = build_grouped(env, groups, 1)
        no_picture = f"no picture: {str(error).splitlines()[0]}"
    with built:
        yield built, no_picture


class _MaxStepsReached(Exception):
    """Ends an episode that is longer than what is shown."""


class _Camera:
    """A RolloutCallback that takes a picture before each step, if the environment has pictures."""

    def __init__(self, env: VectorEnv, max_steps: int, *, draws: bool) -> None:
        self.env, self._n_left, self._draws = env, max_steps, draws
        self.frames: list[np.ndarray] = []
        self.returns: dict[str, float] = {}

    def before_step(self, time_step: TimeStep) -> None:
        if not self._n_left:
            raise _MaxStepsReached
        self._n_left -= 1
        if self._draws:
            try:
                self.frames.append(self.env.render())
            except EnvError:
                self._draws = False
        for group in self.env.spec.groups:
            self.returns |= dict(zip(group.agents, time_step.returns[group.name][0].tolist()))

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        pass


def _encode(frames: Sequence[np.ndarray], kind: Literal["PNG", "GIF"]) -> bytes:
    """The frames as small pictures: one as PNG, or all as an animated GIF; empty without frames."""
    buffer, images = io.BytesIO(), [Image.fromarray(frame) for frame in frames]
    for image in images:
        image.thumbnail((2 * MAX_HEIGHT, MAX_HEIGHT))
    if images:
        images[0].save(buffer, kind, save_all=kind == "GIF", append_images=images[1:], duration=FRAME_MS, loop=0)
    return buffer.getvalue()

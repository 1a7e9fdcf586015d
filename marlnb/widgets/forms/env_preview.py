"""What an environment is like, found by building one copy: its groups and spaces, a picture, a random rollout."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

import numpy as np
from PIL import Image

from marlnb.config import EnvConfig
from marlnb.envs.regroup import Groups, build_grouped
from marlnb.envs.vector import Step, VectorEnv
from marlnb.errors import EnvError
from marlnb.models.policies.scripted import RandomPolicy
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec
from marlnb.training.collect.episodes import TimeStep, play
from marlnb.widgets.core.painting import PAINTING

FRAME_MS = 90
TALLEST = 260  # pixels of a picture that is shown


@dataclass(frozen=True)
class Look:
    """One copy of an environment at its start.

    Attributes:
        picture: as PNG; empty where the environment has none, for the reason in `no_picture`.
    """

    spec: EnvSpec
    picture: bytes
    no_picture: str


def look_at(env: EnvConfig, groups: Groups | None = None) -> Look:
    """Builds a copy, resets it and takes a picture.

    Raises:
        ConfigError, EnvError: the environment cannot be built with these options.
    """
    with PAINTING, _built(env, groups) as (built, no_picture):
        built.reset(0)
        try:
            return Look(built.spec, b"" if no_picture else _png(built.render()), no_picture)
        except EnvError as error:
            return Look(built.spec, b"", str(error))


def random_rollout(
    env: EnvConfig, groups: Groups | None = None, *, seed: int = 0, steps: int = 100
) -> tuple[bytes, dict[str, float]]:
    """A moving picture (GIF) of one episode of random actions, at most `steps` long, and each agent's return in it.

    The picture is empty where the environment has none.

    Raises:
        EnvError: it cannot be built or stepped.
    """
    with PAINTING, _built(env, groups) as (built, no_picture):
        callback = _Camera(built, steps, draws=not no_picture)
        policies = {group.name: RandomPolicy(group) for group in built.spec.groups}
        try:
            table = play(built, policies, episodes=1, seed=seed, explore=True, callback=callback)
        except _Enough:
            return _gif(callback.frames), callback.returns
        found = {agent: float(value) for agent, value in table.to_frame().iloc[0].items() if agent in built.spec.agents}
        return _gif(callback.frames), found


@contextmanager
def _built(env: EnvConfig, groups: Groups | None) -> Iterator[tuple[VectorEnv, str]]:
    """One copy, built so that it can be drawn where that is an option; and why it has no picture, else empty."""
    no_picture = ""
    try:
        built = build_grouped(_with_pictures(env), groups, 1)
    except EnvError as error:  # somebody's own need not take PettingZoo's render_mode
        built = build_grouped(env, groups, 1)
        no_picture = f"no picture: {str(error).splitlines()[0]}"
    with built:
        yield built, no_picture


def _with_pictures(env: EnvConfig) -> EnvConfig:
    drawn = any(item.name == "render" for item in fields(env))
    return replace(env, render=True) if drawn else env  # type: ignore[call-arg]


class _Enough(Exception):
    """The camera has seen as many steps as were asked for."""


class _Camera:
    """Takes a picture before each step, where there are pictures to be had."""

    def __init__(self, env: VectorEnv, steps: int, *, draws: bool) -> None:
        self.env, self._left, self._draws = env, steps, draws
        self.frames: list[np.ndarray] = []
        self.returns: dict[str, float] = {}

    def before_step(self, time_step: TimeStep) -> None:
        if not self._left:
            raise _Enough
        self._left -= 1
        if self._draws:
            try:
                self.frames.append(self.env.render())
            except EnvError:
                self._draws = False
        for group in self.env.spec.groups:
            self.returns |= dict(zip(group.agents, time_step.returns[group.name][0].tolist()))

    def after_step(self, time_step: TimeStep, step: Step, ended: bool) -> None:
        pass


def describe_spec(spec: EnvSpec) -> list[list[object]]:
    """One row a group: name, agents, observation, actions."""
    return [
        [group.name, _agents(group), _observation(group), _action(group.action) + ", masked" * group.has_action_mask]
        for group in spec.groups
    ]


def _agents(group: GroupSpec) -> str:
    names = list(group.agents)
    return ", ".join(names if len(names) <= 6 else [*names[:3], "...", names[-1]]) + f" ({group.n_agents})"


def _observation(group: GroupSpec) -> str:
    shape = " x ".join(map(str, group.observation.shape))
    names = group.observation.names
    return f"{shape}: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else shape


def _action(action: ActionSpec) -> str:
    if action.kind == "continuous":
        return f"continuous, {len(action.low)} from {min(action.low):g} to {max(action.high):g}"
    if action.kind == "discrete":
        names = f": {', '.join(action.names)}" if getattr(action, "names", ()) else ""
        return f"one of {action.n_logits}{names}"
    return f"{action.n_components} choices, {action.n_logits} options in all"


def _png(frame: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    _small(frame).save(buffer, "PNG")
    return buffer.getvalue()


def _gif(frames: Sequence[np.ndarray]) -> bytes:
    if not frames:
        return b""
    buffer = io.BytesIO()
    first, *rest = [_small(frame) for frame in frames]
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=FRAME_MS, loop=0)
    return buffer.getvalue()


def _small(frame: np.ndarray) -> Image.Image:
    image = Image.fromarray(frame)
    image.thumbnail((2 * TALLEST, TALLEST))
    return image

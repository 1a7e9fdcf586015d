"""The pictures of an episode, small: those of the recording, or drawn by living through the episode again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from marlnb.config import EnvConfig
from marlnb.envs.mpe.env import MPE
from marlnb.envs.vector import VectorEnv
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.core.painting import PAINTING
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.objects import Objects, Places, Spoken
from marlnb.widgets.microscope.playing_again import live_again

WIDTH = 320  # pixels at most
PNG_BYTES = 30_000  # beyond it, a picture is a photograph


@dataclass(frozen=True)
class Picture:
    """One moment.

    Attributes:
        place: of its step in the episode's arrays. image: PNG or JPEG; empty where none was drawn.
        places: where the environment's objects are in it; None where that is not known.
        spoken: of the first moment: which features speak of which of them. problem: why that is not known.
    """

    place: int
    image: bytes
    places: Places | None = None
    spoken: Spoken | None = None
    problem: str = ""


def recorded_pictures(view: EpisodeView) -> Iterator[Picture]:
    """Those that were drawn while the episode was recorded; none where the recording has no frames."""
    file = view.recording.file
    if "frames" not in file:
        return
    drawn = file["frames/row"][:]
    for index in np.flatnonzero(np.isin(drawn, view.rows)):
        yield Picture(int(drawn[index] - view.rows[0]), small(np.asarray(file["frames/image"][int(index)])))


def drawn_again(
    view: EpisodeView, subject: PolicySource, env: EnvConfig | None = None, *, images: bool = True
) -> Iterator[Picture]:
    """Pictures and places of things by living through the episode again; without `images` the places alone.

    Raises:
        RecordingError: as `live_again`. Whatever an environment that cannot be drawn raises.
    """
    camera = _Camera()
    objects: Objects | None = None
    for place, built in live_again(view, subject, env):
        spoken = None
        if objects is None:
            objects = Objects(built)
            spoken = objects.spoken_of(view)
        image = small(camera.draw(built)) if images else b""
        yield Picture(place, image, objects.places(), spoken, objects.problem)


def small(image: np.ndarray) -> bytes:
    """`[height, width, 3]` uint8 as a PNG of at most WIDTH pixels across, or as a JPEG where that is large."""
    picture = Image.fromarray(np.ascontiguousarray(image[..., :3]))
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.BOX)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    if buffer.tell() > PNG_BYTES:
        buffer = io.BytesIO()
        picture.save(buffer, format="JPEG", quality=85)
    return buffer.getvalue()


class _Camera:
    """Draws an environment's copy 0. MPE's painter is made once an episode, and then only moved."""

    def __init__(self) -> None:
        self._painter: Any = None

    def draw(self, env: VectorEnv) -> np.ndarray:
        with PAINTING:
            return self._draw(env)

    def _draw(self, env: VectorEnv) -> np.ndarray:
        if not isinstance(env, MPE):
            return env.render(0)
        from marlnb.envs.mpe.picture import to_mpe2

        raw = self._painter
        if raw is None:
            raw = self._painter = to_mpe2(env, 0)
        world = raw.world
        positions = env.world.position[:, :, 0].t().double().cpu().numpy()
        for entity, position in zip(world.entities, positions):
            entity.state.p_pos = position.copy()
        for number, speaker in enumerate(env.scenario.speakers):
            world.agents[speaker].state.c = env.world.message[number, :, 0].double().cpu().numpy().copy()
        return np.ascontiguousarray(raw.render())

"""The frames of an episode as small pictures: those of the recording, or drawn while the episode is replayed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from marlnb.config import EnvConfig
from marlnb.envs.mpe.mpe2_reference import draw
from marlnb.envs.mpe.rules import MPERules
from marlnb.envs.tensor.rules import State
from marlnb.envs.tensor.tensor_vector_env import TensorVectorEnv
from marlnb.envs.vector import VectorEnv
from marlnb.training.policies.policy_source import PolicySource
from marlnb.widgets.core.ui_lock import RENDER_LOCK
from marlnb.widgets.microscope.env_replay import replay_steps
from marlnb.widgets.microscope.episode_view import EpisodeView
from marlnb.widgets.microscope.objects import FeatureObjects, ObjectFinder, Positions

MAX_WIDTH = 320  # pixels
MAX_PNG_BYTES = 30_000  # a larger picture is photographic and is sent as JPEG


@dataclass(frozen=True)
class Frame:
    """One step of an episode.

    Attributes:
        index: of the step in the episode's arrays.
        image: PNG or JPEG; empty if none was drawn.
        positions: of the environment's objects in it; None if they are not known.
        feature_objects: of the first frame: the objects that features describe.
        problem: why objects are not known.
    """

    index: int
    image: bytes
    positions: Positions | None = None
    feature_objects: FeatureObjects | None = None
    problem: str = ""


def recorded_frames(view: EpisodeView) -> Iterator[Frame]:
    """The frames in the recording; none if it has no pictures."""
    file = view.recording.file
    if "frames" not in file:
        return
    rows = file["frames/row"][:]
    for k in np.flatnonzero(np.isin(rows, view.rows)):
        yield Frame(int(rows[k] - view.rows[0]), compress(np.asarray(file["frames/image"][int(k)])))


def replayed_frames(
    view: EpisodeView, source: PolicySource, env: EnvConfig | None = None, *, images: bool = True
) -> Iterator[Frame]:
    """Frames and positions of objects from a replay of the episode.

    Args:
        images: False: positions without pictures.
    Raises:
        RecordingError: as `replay_steps`. Whatever an environment raises that cannot be drawn.
    """
    camera = _Camera()
    objects: ObjectFinder | None = None
    for index, env_now in replay_steps(view, source, env):
        feature_objects = None
        if objects is None:
            objects = ObjectFinder(env_now)
            feature_objects = objects.feature_objects(view)
        image = compress(camera.draw(env_now)) if images else b""
        yield Frame(index, image, objects.positions(), feature_objects, objects.problem)


def compress(image: np.ndarray) -> bytes:
    """`[height, width, 3]` uint8 as a PNG of at most MAX_WIDTH pixels across, or as a JPEG if the PNG is large."""
    picture = Image.fromarray(np.ascontiguousarray(image[..., :3]))
    if picture.width > MAX_WIDTH:
        picture = picture.resize((MAX_WIDTH, round(picture.height * MAX_WIDTH / picture.width)), Image.Resampling.BOX)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    if buffer.tell() > MAX_PNG_BYTES:
        buffer = io.BytesIO()
        picture.save(buffer, format="JPEG", quality=85)
    return buffer.getvalue()


class _Camera:
    """Draws env 0. For MPE, mpe2's environment is built once an episode, and then only its entities move."""

    def __init__(self) -> None:
        self._mpe2: Any = None

    def draw(self, env: VectorEnv) -> np.ndarray:
        with RENDER_LOCK:
            if isinstance(env, TensorVectorEnv) and isinstance(env.rules, MPERules):
                return self._draw_mpe(env.rules, env.state)
            return env.render(0)

    def _draw_mpe(self, rules: MPERules, state: State) -> np.ndarray:
        if self._mpe2 is None:
            self._mpe2 = rules.to_mpe2(state, 0)
        world = rules.world(state)
        positions = world.position[:, :, 0].t().double().cpu().numpy()
        for entity, position in zip(self._mpe2.world.entities, positions):
            entity.state.p_pos = position.copy()
        return draw(self._mpe2, rules.scenario, world, 0)

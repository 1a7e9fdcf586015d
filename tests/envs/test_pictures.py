"""Pictures of environments: what `render` accepts from a PettingZoo, a torchrl and a batched environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marlnb.envs.custom import pettingzoo_vector_env
from marlnb.envs.torchrl import torchrl_vector_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import EnvError
from tests.envs.sample_envs import Scripted
from tests.envs.test_torchrl_env import Counters
from tests.examples.batched_environment import Chase


def drawing(kind: str, picture: Any) -> VectorEnv:
    """An environment of a kind that draws this picture."""
    if kind == "pettingzoo":
        parts = {"__init__": lambda self, render_mode: Scripted.__init__(self), "render": lambda self: picture}
        return pettingzoo_vector_env(type("Drawn", (Scripted,), parts), 1, workers=0, render=True)
    if kind == "torchrl":
        return torchrl_vector_env(type("Drawn", (Counters,), {"render": lambda self: picture}), 1)
    return type("Drawn", (Chase,), {"draw_picture": lambda self, state: picture, "name": "test/drawn"})().build(1)


KINDS = pytest.mark.parametrize("kind", ["pettingzoo", "torchrl", "tensor"])


@KINDS
@pytest.mark.parametrize(
    ("picture", "got"),
    [
        (np.full((4, 5, 3), 0.5), r"shape \[4, 5, 3\] and dtype float64, from 0.5 to 0.5"),
        (np.full((4, 5, 3), 256), r"shape \[4, 5, 3\] and dtype int64, from 256 to 256"),
        (np.full((4, 5, 3), -1, np.int8), r"shape \[4, 5, 3\] and dtype int8, from -1 to -1"),
        (np.zeros((3, 4, 5), np.uint8), r"shape \[3, 4, 5\] and dtype uint8"),
        (np.zeros((4, 5), np.uint8), r"shape \[4, 5\] and dtype uint8"),
        (np.zeros((0, 5, 3), np.uint8), r"shape \[0, 5, 3\] and dtype uint8"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_picture_is_an_error(kind: str, picture: Any, got: str) -> None:
    with drawing(kind, picture) as env:
        env.reset(0)
        with pytest.raises(EnvError, match=rf"returned .*{got}; expected a numpy array \[height, width, 3\]"):
            env.render(0)


@KINDS
@pytest.mark.parametrize("channels", [3, 4])
def test_integers_from_0_to_255_are_kept(kind: str, channels: int) -> None:
    canvas = np.arange(4 * 5 * channels).reshape(4, 5, channels) * 3
    with drawing(kind, canvas) as env:
        env.reset(0)
        picture = env.render(0)
        assert picture.dtype == np.uint8
        np.testing.assert_array_equal(picture, canvas)


@KINDS
def test_an_environment_may_draw_into_the_same_array_again(kind: str) -> None:
    canvas = np.full((4, 5, 3), 7, np.uint8)
    with drawing(kind, canvas) as env:
        env.reset(0)
        picture = env.render(0)
        canvas[:] = 9
        assert (picture == 7).all() and (env.render(0) == 9).all()

"""Spaces to arrays and back, against gymnasium's own flattening and membership."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from marlnb.envs.workers.spaces import action_codec, mask_array, observation_codec
from marlnb.errors import EnvError

BOX = spaces.Box(-2, 3, (2, 3), np.float64)
NESTED = spaces.Dict({"near": BOX, "kind": spaces.Discrete(3, start=4), "rest": spaces.Tuple([spaces.MultiBinary(2)])})
LONG = spaces.Tuple([spaces.Box(-1, 1, (1,), np.float32) for _ in range(12)])  # as keys, "10" is before "2"


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        NESTED,
        LONG,
    ],
)
def test_observations_are_flattened_as_gymnasium_does(space: spaces.Space[Any]) -> None:
    space.seed(0)
    codec = observation_codec("a", space)
    row = np.empty(codec.spec.shape, codec.spec.dtype)
    for _ in range(5):
        value = space.sample()
        codec.write(value, row)
        np.testing.assert_array_equal(row, spaces.flatten(space, value).astype(np.float32))


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (BOX, (2, 3), "float32"),
        (spaces.Box(0, 255, (4, 5, 3), np.uint8), (4, 5, 3), "uint8"),
        (spaces.Box(0, 255, (7,), np.uint8), (7,), "float32"),
        (spaces.Box(0, 1, (), np.float32), (1,), "float32"),
    ],
)
def test_boxes_keep_their_shape(space: spaces.Box, shape: tuple[int, ...], dtype: str) -> None:
    space.seed(0)
    codec, value = observation_codec("a", space), space.sample()
    assert (codec.spec.shape, codec.spec.dtype) == (shape, dtype)
    row = np.empty(shape, dtype)
    codec.write(value, row)
    np.testing.assert_array_equal(row.reshape(space.shape), value.astype(dtype))


@pytest.mark.parametrize("shape", [(7, 9, 3), (6, 6), (1, 10, 2)])
def test_of_an_image_every_third_pixel_is_kept(shape: tuple[int, ...]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8, seed=0)
    codec, value = observation_codec("a", space, pixel_stride=3), space.sample()
    row = np.empty(codec.spec.shape, np.uint8)
    codec.write(value, row)
    kept = [[value[y, x].tolist() for x in range(0, shape[1], 3)] for y in range(0, shape[0], 3)]
    assert row.tolist() == kept
    with pytest.raises(ValueError, match="its space says"):
        codec.write(value[:, :-1], row)  # a pixel is missing, though as many would be kept
    assert observation_codec("a", BOX, pixel_stride=3).spec.shape == BOX.shape  # no image


def test_a_mask_is_no_observation() -> None:
    mask = spaces.Box(0, 1, (3,), np.int8)
    codec = observation_codec("a", spaces.Dict({"observation": BOX, "action_mask": mask}))
    assert codec.mask_inside and codec.spec.shape == (2, 3)
    two = observation_codec("a", spaces.Dict({"position": BOX, "action_mask": mask, "side": spaces.Discrete(2)}))
    row = np.empty(8, np.float32)
    two.write({"position": np.ones((2, 3)), "action_mask": np.ones(3), "side": 1}, row)
    assert row.tolist() == [1, 1, 1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("space", "kind", "n"),
    [
        (spaces.Discrete(3), "discrete", (3,)),
        (spaces.Discrete(3, start=5), "discrete", (3,)),
        (spaces.MultiDiscrete([2, 4]), "multi_discrete", (2, 4)),
        (spaces.MultiDiscrete([[2, 4], [3, 2]]), "multi_discrete", (2, 4, 3, 2)),
        (spaces.MultiBinary(3), "multi_discrete", (2, 2, 2)),
        (spaces.Box(-1, 2, (2,), np.int64), "multi_discrete", (4, 4)),
        (spaces.Box(0, 1, (2,), np.bool_), "multi_discrete", (2, 2)),
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([3, 2])]), "multi_discrete", (2, 3, 2)),
        (spaces.Dict({"move": spaces.Discrete(4), "say": spaces.Discrete(2, start=1)}), "multi_discrete", (4, 2)),
    ],
)
def test_whole_actions(space: spaces.Space[Any], kind: str, n: tuple[int, ...]) -> None:
    codec = action_codec("a", space)
    assert (codec.spec.kind, codec.spec.n) == (kind, n)
    generator, seen = np.random.default_rng(0), set()
    for _ in range(1000):
        row = generator.integers(0, n)
        action = codec.decode(row[0] if kind == "discrete" else row)
        assert space.contains(action), action
        seen.add(str(action))
    assert len(seen) == np.prod(n)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,), np.float32),
        BOX,
        spaces.Box(-0.1, 0.1, (2,), np.float64),  # float32's nearest numbers are outside of it
        spaces.Box(0, 1, (), np.float32),
        spaces.Dict({"u": BOX, "c": spaces.Box(0, 1, (1,))}),
    ],
)
def test_continuous_actions(space: spaces.Space[Any]) -> None:
    codec = action_codec("a", space)
    low, high = np.array(codec.spec.low, np.float32), np.array(codec.spec.high, np.float32)
    assert low.size == spaces.flatdim(space)
    for row in (low, high, (low + high) / 2):
        action = codec.decode(row)
        assert space.contains(action), action
        np.testing.assert_array_equal(spaces.flatten(space, action).astype(np.float32), row[: low.size])


@pytest.mark.parametrize(
    ("space", "described"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "bounds are infinite, .* return a Box with the range of useful actions"),
        (spaces.Box(0, np.inf, (2,)), "bounds are infinite"),
        (spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max), r"bounds are infinite, or beyond 1e\+30"),
        (spaces.Box(np.array([0, 1], np.float32), np.array([1, 1], np.float32)), "component 1 has low >= high"),
        (spaces.Dict({"move": spaces.Discrete(2), "push": spaces.Box(0, 1, (1,))}), "is not supported; supported"),
        (spaces.Text(5), "is not supported; supported"),
    ],
)
def test_actions_that_are_refused(space: spaces.Space[Any], described: str) -> None:
    with pytest.raises(EnvError, match=f"agent 'walker_1' acts in .*{described}"):
        action_codec("walker_1", space)


def test_observations_that_are_refused() -> None:
    with pytest.raises(EnvError, match=r"agent 'a' observes Text.* at 'said', which is not supported; supported"):
        observation_codec("a", spaces.Dict({"said": spaces.Text(5), "near": BOX}))


def test_a_mask_that_the_space_lacks_is_named() -> None:
    """PettingZoo's tutorial on action masks has such a space."""
    codec = observation_codec("a", spaces.MultiDiscrete([49] * 3))
    with pytest.raises(ValueError, match=r"observation_space has no action_mask; return .*spaces.MultiBinary\(n\)"):
        codec.write({"observation": (0, 1, 2), "action_mask": [0, 1]}, np.zeros(147, np.float32))


def test_masks_of_several_components() -> None:
    space = spaces.MultiDiscrete([2, 3])
    assert mask_array((np.array([1, 0]), np.array([0, 1, 1])), space, 5).tolist() == [True, False, False, True, True]
    with pytest.raises(EnvError, match="4 entries; expected 5"):
        mask_array(np.ones(4), space, 5)


def test_a_mask_that_is_a_dict_has_the_order_of_the_space() -> None:
    """gymnasium sorts the keys of a space."""
    space = spaces.Tuple([spaces.Dict({"move": spaces.Discrete(3), "attack": spaces.Discrete(2)}), spaces.Discrete(2)])
    mask = ({"move": np.array([1, 0, 1]), "attack": np.array([0, 1])}, np.array([1, 0]))
    assert mask_array(mask, space, 7).tolist() == [False, True, True, False, True, True, False]
    with pytest.raises(EnvError, match=r"has the keys \['move'\]; the action space has \['attack', 'move'\]"):
        mask_array({"move": np.ones(5)}, space[0], 5)

"""Gymnasium spaces as arrays: one array per observation and one per action, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from gymnasium import spaces

from marlnb.envs.workers.flattening import flattener, whole_numbers
from marlnb.errors import EnvError
from marlnb.specs import ActionSpec, ObservationSpec

OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
ACTIONS = "Discrete, MultiDiscrete, MultiBinary, bounded Box, and Dict or Tuple of whole numbers only or of Boxes only"
MASK, OBSERVATION = "action_mask", "observation"
MAX_BOUND = np.float32(1e30)  # of a continuous action; larger ones stand for infinity, and overflow
MAX_NAMES = 1000  # features of an observation that are named; a recording stores the names in one HDF5 attribute


@dataclass(frozen=True)
class ObservationCodec:
    """How an agent's observation becomes one array.

    Attributes:
        spec: the array's shape and dtype.
        mask_inside: the observation is a dict that also contains the action mask.
        flatten: makes a flat float32 array; None if the observation is an array already.
        image_shape: of an image before pixels are left out; None: the observation is no image.
        pixel_stride: every n-th pixel of an image is kept, in both directions.
    """

    spec: ObservationSpec
    mask_inside: bool
    flatten: Callable[[Any], np.ndarray] | None
    image_shape: tuple[int, ...] | None = None
    pixel_stride: int = 1

    @property
    def is_plain(self) -> bool:
        """An observation of the right shape can be copied as it is."""
        return not self.mask_inside and self.flatten is None and self.spec.dtype != "uint8"

    def write(self, value: Any, row: np.ndarray) -> None:
        """Writes an observation into its row.

        Raises:
            ValueError: another shape, or a number that the row cannot hold. Others, as KeyError: parts are missing.
        """
        if self.mask_inside:
            value = without_mask(value)
        elif isinstance(value, dict) and MASK in value and OBSERVATION in value:
            raise ValueError(
                f"a dict with {list(value)}, but its observation_space has no {MASK}; return from observation_space "
                f"spaces.Dict({{{OBSERVATION!r}: ..., {MASK!r}: spaces.MultiBinary(n)}}), n choices"
            )
        if self.flatten is not None:
            value = self.flatten(value)
        shape, expected = np.shape(value), self.image_shape or row.shape
        if (shape or (1,)) != expected:
            raise ValueError(f"an array of shape {shape}; its space says {expected}")
        if self.image_shape is not None:
            kept = np.asarray(value)[:: self.pixel_stride, :: self.pixel_stride]
            value = whole_numbers(kept, row.dtype)
        row[...] = value


@dataclass(frozen=True)
class ActionCodec:
    """How an array becomes the action that an environment expects.

    Attributes:
        space: the environment's own.
        spec: the kind of action.
        decode: converts one agent's row.
    """

    space: spaces.Space
    spec: ActionSpec
    decode: Callable[[Any], Any]


def without_mask(value: Any) -> Any:
    """An observation without its action mask."""
    rest = {key: item for key, item in value.items() if key != MASK}
    return rest[OBSERVATION] if list(rest) == [OBSERVATION] else rest


def observation_codec(agent: str, space: spaces.Space, pixel_stride: int = 1) -> ObservationCodec:
    """How `agent`'s observations are read.

    Args:
        pixel_stride: of an image, `[height, width, ...]` uint8, every n-th pixel is kept in both directions.
    Raises:
        EnvError: a space, or a part of one, that is not supported.
    """
    mask_inside = isinstance(space, spaces.Dict) and MASK in space.spaces and len(space.spaces) > 1
    if mask_inside:
        rest = {key: item for key, item in space.spaces.items() if key != MASK}
        space = rest[OBSERVATION] if list(rest) == [OBSERVATION] else spaces.Dict(rest)
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) > 1:
            height, width, *rest = space.shape
            kept = (-(-height // pixel_stride), -(-width // pixel_stride), *rest)
            return ObservationCodec(ObservationSpec(kept, "uint8"), mask_inside, None, space.shape, pixel_stride)
        return ObservationCodec(ObservationSpec(space.shape or (1,), "float32"), mask_inside, None)
    for path, leaf in leaves(space):
        if not isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            where = f" at {path!r}" if path else ""
            raise EnvError(f"agent {agent!r} observes {leaf}{where}, which is not supported; supported: {OBSERVATIONS}")
    spec = ObservationSpec((int(spaces.flatdim(space)),), names=feature_names(space))
    return ObservationCodec(spec, mask_inside, flattener(space))


def feature_names(space: spaces.Space) -> tuple[str, ...]:
    """Names of the features of a flattened Dict, made of its keys: `position_0`, `position_1`, `goal_0`.

    A nested key follows its parents' keys (`self_position_0`). A part with one number has its key alone (`speed`). A
    choice of a Discrete part is named by its value (`door_3`), a cell of a larger box by its indices (`map_0_1`). If
    two names are equal, all are joined by `/` instead. Other spaces have no names, nor have more than 1000 features.
    """
    if not isinstance(space, spaces.Dict) or spaces.flatdim(space) > MAX_NAMES:
        return ()
    parts = [(*path.split("/"), *index) for path, leaf in leaves(space) for index in _indices(leaf)]
    for separator in ("_", "/"):
        names = tuple(separator.join(part) for part in parts)
        if len(set(names)) == len(names):
            return names
    return ()


def _indices(space: spaces.Space) -> Iterator[tuple[str, ...]]:
    """The index of each feature of a flattened leaf; empty for a single number."""
    if isinstance(space, spaces.Discrete):
        axes = [range(int(space.start), int(space.start + space.n))]
    elif isinstance(space, spaces.MultiDiscrete):
        nvec, start = np.ravel(space.nvec), np.ravel(space.start)
        for component, (n, first) in enumerate(zip(nvec, start)):
            yield from ((str(component), str(value)) for value in range(int(first), int(first + n)))
        return
    else:
        shape = space.shape or ()
        axes = [] if int(np.prod(shape)) == 1 else [range(size) for size in shape]
    yield from (tuple(map(str, index)) for index in product(*axes))


def leaves(space: spaces.Space, path: str = "") -> Iterator[tuple[str, spaces.Space]]:
    """(path, space) of the leaves of nested Dict and Tuple spaces, in their order."""
    if isinstance(space, spaces.Dict):
        for key, item in space.spaces.items():
            yield from leaves(item, f"{path}/{key}" if path else str(key))
    elif isinstance(space, spaces.Tuple):
        for index, item in enumerate(space.spaces):
            yield from leaves(item, f"{path}/{index}" if path else str(index))
    else:
        yield path, space


def action_codec(agent: str, space: spaces.Space) -> ActionCodec:
    """How `agent`'s actions are written.

    Raises:
        EnvError: a space that is not supported: unbounded, of mixed kinds, or of another type.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return ActionCodec(space, ActionSpec("discrete", n=(int(space.n),)), _shifted(start))
    parts = [leaf for _, leaf in leaves(space)]
    if parts and all(_is_integer(part) for part in parts):
        counts = tuple(int(n) for part in parts for n in _counts(part)[0])
        return ActionCodec(space, ActionSpec("multi_discrete", n=counts), _nested(space))
    if parts and all(isinstance(part, spaces.Box) for part in parts):
        low = np.concatenate([np.ravel(part.low) for part in parts]).astype(np.float64)
        high = np.concatenate([np.ravel(part.high) for part in parts]).astype(np.float64)
        _check_bounds(agent, space, low, high)
        spec = ActionSpec("continuous", low=tuple(low.tolist()), high=tuple(high.tolist()))
        if isinstance(space, spaces.Box) and space.dtype == np.float32 and len(space.shape) == 1:
            return ActionCodec(space, spec, _as_it_is)
        return ActionCodec(space, spec, _nested(space))
    raise EnvError(f"agent {agent!r} acts in {space}, which is not supported; supported: {ACTIONS}")


def _check_bounds(agent: str, space: spaces.Space, low: np.ndarray, high: np.ndarray) -> None:
    if not (np.abs(low) <= MAX_BOUND).all() or not (np.abs(high) <= MAX_BOUND).all():
        raise EnvError(
            f"agent {agent!r} acts in {space}, whose bounds are infinite, or beyond {MAX_BOUND:g}; expected finite "
            "ones, which actions are scaled to: return a Box with the range of useful actions from action_space, in "
            "the environment or in a wrapper of your own"
        )
    if not (low < high).all():
        raise EnvError(f"agent {agent!r} acts in {space}, where component {int(np.argmin(low < high))} has low >= high")


def _is_integer(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Box):
        return space.dtype == np.bool_ or bool(np.issubdtype(space.dtype, np.integer))
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def _counts(space: spaces.Space) -> tuple[np.ndarray, np.ndarray]:
    """(number of choices, lowest value) of each component of an integer space."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n]), np.array([space.start])
    if isinstance(space, spaces.MultiDiscrete):
        return np.ravel(space.nvec), np.ravel(space.start)
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return np.full(size, 2), np.zeros(size, int)
    low = np.ravel(space.low).astype(np.int64)
    return np.ravel(space.high).astype(np.int64) - low + 1, low


def _as_it_is(row: np.ndarray) -> np.ndarray:
    return row


def _shifted(start: int) -> Callable[[Any], Any]:
    if start == 0:
        return _as_it_is
    return lambda row: row + start


def _nested(space: spaces.Space) -> Callable[[np.ndarray], Any]:
    """Rebuilds a nested action from a flat row, each part in the dtype and shape of its space."""

    def build(part: spaces.Space, row: np.ndarray, at: int) -> tuple[Any, int]:
        if isinstance(part, spaces.Dict):
            made = {}
            for key, item in part.spaces.items():
                made[key], at = build(item, row, at)
            return made, at
        if isinstance(part, spaces.Tuple):
            items = []
            for item in part.spaces:
                value, at = build(item, row, at)
                items.append(value)
            return tuple(items), at
        if isinstance(part, spaces.Box) and not _is_integer(part):
            size = int(np.prod(part.shape))
            value = row[at : at + size].reshape(part.shape).astype(part.dtype)
            np.clip(value, part.low, part.high, out=value)  # float32 rounds float64 bounds, perhaps outwards
            return value, at + size
        counts, low = _counts(part)
        value = row[at : at + counts.size] + low
        at += counts.size
        return (value[0] if isinstance(part, spaces.Discrete) else value.reshape(part.shape).astype(part.dtype)), at

    return lambda row: build(space, row, 0)[0]


def mask_array(mask: Any, space: spaces.Space, n_logits: int) -> np.ndarray:
    """An action mask as one row of `n_logits` booleans; masks of several components may be a sequence or dict.

    Raises:
        EnvError: another length, or a dict whose keys are not those of the action space.
    """
    is_flat = isinstance(mask, np.ndarray)
    row = (np.ravel(mask) if is_flat else np.concatenate(list(_mask_parts(mask, space)))).astype(bool)
    if row.size != n_logits:
        raise EnvError(f"an action mask has {row.size} entries; expected {n_logits}, one per choice")
    return row


def _mask_parts(mask: Any, space: spaces.Space | None) -> Iterator[np.ndarray]:
    """Flat masks of the components of `space`, in its order, whatever the order of a dict is."""
    if isinstance(mask, dict):
        parts = space.spaces if isinstance(space, spaces.Dict) else {}
        if mask.keys() != set(parts):
            raise EnvError(f"an action mask has the keys {list(mask)}; the action space has {list(parts)}")
        for key, part in parts.items():
            yield from _mask_parts(mask[key], part)
    elif isinstance(mask, tuple | list) and mask and not np.isscalar(mask[0]):
        items = space.spaces if isinstance(space, spaces.Tuple) else ()
        for i, part_mask in enumerate(mask):
            yield from _mask_parts(part_mask, items[i] if len(items) == len(mask) else None)
    else:
        yield np.ravel(mask)

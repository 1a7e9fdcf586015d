"""Observations of Dict, Tuple and discrete spaces as flat float32 rows: the numbers of gymnasium's `flatten`.

gymnasium's takes a part of any shape, reads a choice that a Discrete space does not have as another one, and cuts
numbers to the part's dtype. Here each part is checked as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium import spaces

Writer = Callable[[Any, np.ndarray], None]


def flattener(space: spaces.Space) -> Callable[[Any], np.ndarray]:
    """A function that makes an observation of `space` a new float32 row.

    It raises ValueError, KeyError or TypeError, with the part's path, for an observation that is not in the space.
    """
    write, size = _writer(space, ""), int(spaces.flatdim(space))

    def flatten(value: Any) -> np.ndarray:
        row = np.zeros(size, np.float32)
        write(value, row)
        return row

    return flatten


def whole_numbers(value: Any, dtype: np.dtype) -> np.ndarray:
    """`value` as an array of an integer dtype.

    Raises:
        ValueError: that would change a number: a fraction, or one beyond the dtype's range.
    """
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    with np.errstate(invalid="ignore"):
        cut = array.astype(dtype)
    changed = cut != array
    if changed.any():
        raise ValueError(f"{array[changed].flat[0]!r} of dtype {array.dtype}; its space has dtype {dtype}")
    return cut


def _writer(space: spaces.Space, path: str) -> Writer:
    if isinstance(space, spaces.Dict):
        return _parts_writer(space.spaces.items(), path)
    if isinstance(space, spaces.Tuple):
        return _tuple_writer(space, path)
    if isinstance(space, spaces.Discrete):
        return _choice_writer(np.array([space.n]), int(space.start), (), path)
    if isinstance(space, spaces.MultiDiscrete):
        return _choice_writer(np.ravel(space.nvec), space.start, space.shape, path)
    return _array_writer(space.shape, path)


def _parts_writer(items: Iterable[tuple[Any, spaces.Space]], path: str) -> Writer:
    """Writes `value[key]` of each (key, space), one after the other."""
    parts, start = [], 0
    for key, item in items:
        size = int(spaces.flatdim(item))
        parts.append((key, slice(start, start + size), _writer(item, f"{path}/{key}" if path else str(key))))
        start += size

    def write(value: Any, row: np.ndarray) -> None:
        for key, at, write_part in parts:
            write_part(value[key], row[at])

    return write


def _tuple_writer(space: spaces.Tuple, path: str) -> Writer:
    write_parts, n_parts = _parts_writer(enumerate(space.spaces), path), len(space.spaces)

    def write(value: Any, row: np.ndarray) -> None:
        if len(value) != n_parts:
            raise ValueError(f"{_named(path)}{len(value)} parts; its space says {n_parts}")
        write_parts(value, row)

    return write


def _choice_writer(counts: np.ndarray, start: Any, shape: tuple[int, ...], path: str) -> Writer:
    """One-hot rows of discrete components."""
    first = np.cumsum(counts) - counts
    start = np.ravel(start)

    def write(value: Any, row: np.ndarray) -> None:
        array = np.asarray(value)
        if array.shape != shape or array.dtype.kind not in "iub":
            raise ValueError(f"{_named(path)}{value!r}; its space says whole numbers of shape {shape}")
        choice = array.ravel().astype(np.int64) - start
        if not ((choice >= 0) & (choice < counts)).all():
            raise ValueError(f"{_named(path)}{value!r}; its space says {counts.tolist()} choices from {start.tolist()}")
        row[first + choice] = 1

    return write


def _array_writer(shape: tuple[int, ...], path: str) -> Writer:
    def write(value: Any, row: np.ndarray) -> None:
        array = np.asarray(value)
        if array.shape != shape:
            raise ValueError(f"{_named(path)}an array of shape {array.shape}; its space says {shape}")
        row[:] = array.ravel()

    return write


def _named(path: str) -> str:
    return f"as {path!r} " if path else ""

"""LabelledArray: one dataset of a recording, or a part of it, that is read only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from marlnb.errors import RecordingError, unknown
from marlnb.recording.file.layout import BFLOAT16, hdf5_type, is_bfloat16

Selector = int | str | slice | Sequence[int] | Sequence[str] | np.ndarray
Picked = int | slice | np.ndarray
MOST_GAP, SPAN_ROWS = 16, 8192
OF_ROWS = ("episode", "t", "checkpoint")
RowFinder = Callable[[np.ndarray, Mapping[str, Selector]], np.ndarray]


@dataclass(frozen=True, repr=False)
class LabelledArray:
    """A lazy array `[row, ...]` with named axes; `sel` narrows it, `to_numpy` reads it.

    Attributes:
        path: the dataset's, as `activations/listener/actor/hidden_1`.
        labels: by axis, the names that `sel` takes besides indices, as the agents' or the features'.
        rows: which rows of the file, `[row]` int64, ascending within an episode.
    """

    path: str
    open_dataset: Callable[[], h5py.Dataset]
    find_rows: RowFinder
    axes: tuple[tuple[str, int], ...]
    labels: Mapping[str, Sequence[str]]
    rows: np.ndarray
    dtype_stored: str
    picks: tuple[Picked, ...]

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes; one that was selected by a single index or name is gone."""
        kept = (name for (name, _), pick in zip(self.axes, self.picks) if not isinstance(pick, int))
        return ("row", *kept)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *(n for n in map(_length, self.picks, (n for _, n in self.axes)) if n is not None))

    @property
    def dtype(self) -> np.dtype:
        """What `to_numpy` gives: float32 where halves are stored."""
        halves = self.dtype_stored in ("float16", BFLOAT16)
        return np.dtype("float32" if halves else self.dtype_stored)

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}: {length}" for name, length in zip(self.dims, self.shape))
        stored = "" if self.dtype.name == self.dtype_stored else f", stored as {self.dtype_stored}"
        return f"<{self.path} ({axes}) {self.dtype.name}{stored}, not read yet>"

    def sel(self, **selectors: Selector) -> LabelledArray:
        """A part, still not read.

        Args:
            selectors: by axis (`agent`, `unit`, `feature`, ...), an index, a name, a slice of indices or a list of
                either; a single one drops the axis, except that rows stay. `episode` (its number) and `t` (steps since
                the episode began) choose rows: a number, a list, or a slice that leaves out its end; so does
                `checkpoint` (the iteration of the one that played), a number or a list.
        Raises:
            RecordingError: an axis, a name, an index or an episode that is not there.
        """
        names = [name for name, _ in self.axes]
        of_rows: dict[str, Selector] = {name: selectors.pop(name) for name in OF_ROWS if name in selectors}
        picks = list(self.picks)
        for name, selector in selectors.items():
            if name not in self.dims:
                raise RecordingError(unknown(f"axis of {self.path}", name, [*self.dims[1:], *OF_ROWS]))
            axis = names.index(name)
            before = np.arange(self.axes[axis][1])[picks[axis]]
            picks[axis] = self._pick(name, selector, before)
        rows = self.find_rows(self.rows, of_rows) if of_rows else self.rows
        return replace(self, picks=tuple(picks), rows=rows)

    def to_numpy(self, *, keep_dtype: bool = False) -> np.ndarray:
        """Reads it, with the axes of `dims`.

        Args:
            keep_dtype: leave float16 as it is stored, instead of making it float32 (numpy has no bfloat16).
        """
        return self._read(self.rows, raw=False, keep=keep_dtype)

    def to_torch(self, *, keep_dtype: bool = False) -> Tensor:
        """Reads it as a tensor; `keep_dtype` leaves float16 and bfloat16 as they are stored."""
        if keep_dtype and self.dtype_stored == BFLOAT16:
            return torch.from_numpy(self._read(self.rows, raw=True, keep=True).view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(self.to_numpy(keep_dtype=keep_dtype))

    def batches(self, rows: int = 8192) -> Iterator[np.ndarray]:
        """Reads it `rows` rows at a time, in order."""
        if rows < 1:
            raise RecordingError(f"a batch has 1 row or more; got {rows}")
        for start in range(0, len(self.rows), rows):
            yield self._read(self.rows[start : start + rows], raw=False, keep=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.to_numpy()
        return found if dtype is None else found.astype(dtype)

    def _pick(self, name: str, selector: Selector, among: np.ndarray) -> Picked:
        """Indices along the stored axis for a selector that counts within what was selected before."""
        if isinstance(selector, slice):
            start, stop = (
                end if end is None else self._end(name, end, among) for end in (selector.start, selector.stop)
            )
            return among[start : stop : selector.step]
        if isinstance(selector, (str, int, np.integer)):
            return int(among[self._index(name, selector, among)])
        return among[[self._index(name, item, among) for item in selector]]

    def _end(self, name: str, end: Any, among: np.ndarray) -> int:
        return self._index(name, end, among) if isinstance(end, str) else int(end)

    def _index(self, name: str, item: Any, among: np.ndarray) -> int:
        """Where a name or an index lies within what was selected before."""
        if isinstance(item, str):
            names = [self.labels[name][i] for i in among] if self.labels.get(name) else []
            if item not in names:
                raise RecordingError(unknown(f"{name} in {self.path}", item, names))
            return names.index(item)
        if not -len(among) <= item < len(among):
            raise RecordingError(f"{self.path} has {len(among)} along {name!r}; there is no index {item}")
        return int(item)

    def _read(self, rows: np.ndarray, *, raw: bool, keep: bool) -> np.ndarray:
        """Reads bounding boxes run by run, then takes what was picked out of them; in the order in which rows lie."""
        if len(rows) > 1 and (np.diff(rows) < 0).any():  # else each row would read its whole chunk anew
            order = np.argsort(rows, kind="stable")
            ascending = self._read(rows[order], raw=raw, keep=keep)
            found = np.empty_like(ascending)
            found[order] = ascending
            return found
        dataset = self.open_dataset()
        boxes = [_box(pick, length) for pick, (_, length) in zip(self.picks, self.axes)]
        bits = is_bfloat16(dataset)
        out = np.empty((len(rows), *(stop - start for start, stop in boxes)), np.uint16 if bits else dataset.dtype)
        memory_type = hdf5_type(BFLOAT16) if bits else None
        space, done = dataset.id.get_space(), 0
        for start, stop, n_rows in _spans(rows):
            count = (stop - start, *out.shape[1:])
            space.select_hyperslab((start, *(first for first, _ in boxes)), count)
            target = out[done : done + n_rows]
            chosen = rows[done : done + n_rows] - start
            whole = np.array_equal(chosen, np.arange(stop - start))  # not so where a row is asked for twice
            box = target if whole else np.empty(count, out.dtype)
            dataset.id.read(h5py.h5s.create_simple(count), space, box, memory_type)
            if not whole:
                np.take(box, chosen, axis=0, out=target)
            done += n_rows
        out = _take(out, self.picks, boxes)
        if bits:
            return out if raw else (out.astype(np.uint32) << 16).view(np.float32)
        return out.astype(np.float32) if out.dtype == np.float16 and not keep else out


def _length(pick: Picked, length: int) -> int | None:
    return None if isinstance(pick, int) else len(range(length)[pick]) if isinstance(pick, slice) else len(pick)


def _box(pick: Picked, length: int) -> tuple[int, int]:
    """First and one past the last index that is needed."""
    if isinstance(pick, int):
        return pick, pick + 1
    if isinstance(pick, slice):
        return 0, length
    return (int(pick.min()), int(pick.max()) + 1) if len(pick) else (0, 0)


def _take(box: np.ndarray, picks: Sequence[Picked], boxes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Picks out of a bounding box, from the last axis to the first, so that dropping one moves none before it."""
    for axis in range(len(picks), 0, -1):
        pick, (first, stop) = picks[axis - 1], boxes[axis - 1]
        if isinstance(pick, int):
            box = box.take(0, axis=axis)
        elif not isinstance(pick, slice) and not np.array_equal(pick, np.arange(first, stop)):
            box = box.take(pick - first, axis=axis)
    return box


def _spans(rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Stretches to be read at once, with how many of the ascending rows lie in each: [3, 4, 9] -> (3, 10, 3).

    Reading a few rows too many costs less than another call of HDF5.
    """
    if not len(rows):
        return
    breaks = np.flatnonzero(np.diff(rows) > MOST_GAP) + 1
    for part in np.split(rows, breaks):
        for first in range(0, len(part), SPAN_ROWS):
            span = part[first : first + SPAN_ROWS]
            yield int(span[0]), int(span[-1]) + 1, len(span)

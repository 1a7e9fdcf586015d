"""LabelledArray: one dataset of a recording, or a part of it, that is read only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from marlnb.display.formatting import format_bytes
from marlnb.display.notebook_html import note_html, table_html, title_html
from marlnb.errors import RecordingError, unknown
from marlnb.recording.file.layout import BFLOAT16, bfloat16_numbers, hdf5_type, is_bfloat16
from marlnb.recording.file.opening import reading

if TYPE_CHECKING:
    from torch import Tensor

Selector = int | str | slice | Sequence[int] | Sequence[str] | np.ndarray
Picked = int | slice | np.ndarray
MAX_GAP = 16  # rows between two requested ones that are read along, instead of reading twice
MAX_SPAN_ROWS = 8192  # rows read at once
MAX_SHOWN_NAMES = 12
ROW_SELECTORS = ("episode", "t", "checkpoint")
RowFinder = Callable[[np.ndarray, Mapping[str, Selector]], np.ndarray]


def expand_agents(values: np.ndarray, recorded: Sequence[str], agents: Sequence[str]) -> np.ndarray:
    """`[row, recorded agent, ...]` -> `[row, agent, ...]`, zero for agents that were not recorded."""
    if list(agents) == list(recorded):
        return values
    expanded = np.zeros((len(values), len(agents), *values.shape[2:]), values.dtype)
    expanded[:, [list(agents).index(agent) for agent in recorded]] = values
    return expanded


@dataclass(frozen=True, repr=False)
class LabelledArray:
    """A lazy array `[row, ...]` with named axes; `sel` narrows it, `to_numpy` reads it.

    Attributes:
        path: the dataset, such as `activations/listener/actor/hidden_1`.
        open_dataset: returns the open HDF5 dataset.
        find_rows: applies selectors of episodes, times and checkpoints to rows.
        axes: (name, length) of the stored axes after `row`.
        labels: by axis, the names that `sel` takes besides indices, as those of agents or features.
        rows: `[row]` int64, rows of the file, ascending within an episode.
        dtype_stored: the dtype in the file.
        picks: by axis, the selected indices.
        check_box: raises RecordingError where a box, (start, stop) by stored axis, is not what was written.
    """

    path: str
    open_dataset: Callable[[], h5py.Dataset]
    find_rows: RowFinder
    axes: tuple[tuple[str, int], ...]
    labels: Mapping[str, Sequence[str]]
    rows: np.ndarray
    dtype_stored: str
    picks: tuple[Picked, ...]
    check_box: Callable[[Sequence[tuple[int, int]]], None] = lambda box: None

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes. An axis selected by a single index or name is dropped."""
        return ("row", *(name for (name, _), pick in zip(self.axes, self.picks) if not isinstance(pick, int)))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *(n for n in map(_length, self.picks, (n for _, n in self.axes)) if n is not None))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of `to_numpy`: float32 where float16 or bfloat16 is stored."""
        is_half = self.dtype_stored in ("float16", BFLOAT16)
        return np.dtype("float32" if is_half else self.dtype_stored)

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}: {length}" for name, length in zip(self.dims, self.shape))
        stored = "" if self.dtype.name == self.dtype_stored else f", stored as {self.dtype_stored}"
        return f"<{self.path} ({axes}) {self.dtype.name}{stored}, not read yet>"

    def _repr_html_(self) -> str:
        picks = {name: pick for (name, _), pick in zip(self.axes, self.picks)}
        rows = [(dim, f"{length:,}", self._names(dim, picks.get(dim))) for dim, length in zip(self.dims, self.shape)]
        stored = "" if self.dtype.name == self.dtype_stored else f", stored as {self.dtype_stored}"
        note = f"{self.dtype.name}{stored}, {format_bytes(self.size_bytes)}, not read yet: to_numpy() reads it"
        return title_html(self.path) + note_html(note) + table_html(("axis", "length", "names"), rows)

    def _names(self, dim: str, pick: Picked | None) -> str:
        """The first names along an axis, in words; empty if it has none."""
        if pick is None or not self.labels.get(dim):
            return ""
        names = [str(name) for name in np.asarray(self.labels[dim], dtype=object)[pick]]
        shown = ", ".join(names[:MAX_SHOWN_NAMES])
        return f"{shown} and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else shown

    def sel(self, **selectors: Selector) -> LabelledArray:
        """A part of the array, not read yet.

        Args:
            selectors: by axis (`agent`, `unit`, `feature`, ...), an index, a name, a slice of indices or a list of
                indices or names; a single index or name drops the axis. `episode` (its number), `t` (steps since the
                episode began) and `checkpoint` (its iteration) select rows: a number, a list or, except for
                `checkpoint`, a slice that excludes its end. An axis and `episode` also take a mask, one boolean for
                each index or episode.
        Raises:
            RecordingError: an axis, name, index or episode does not exist.
        """
        names = [name for name, _ in self.axes]
        row_selectors: dict[str, Selector] = {name: selectors.pop(name) for name in ROW_SELECTORS if name in selectors}
        picks = list(self.picks)
        for name, selector in selectors.items():
            if name not in self.dims:
                raise RecordingError(unknown(f"axis of {self.path}", name, [*self.dims[1:], *ROW_SELECTORS]))
            axis = names.index(name)
            selected = np.arange(self.axes[axis][1])[picks[axis]]
            picks[axis] = self._pick(name, scalar_or_list(selector), selected)
        rows = self.find_rows(self.rows, row_selectors) if row_selectors else self.rows
        return replace(self, picks=tuple(picks), rows=rows)

    def to_numpy(self, *, keep_dtype: bool = False) -> np.ndarray:
        """Reads the array, with the axes of `dims`.

        Args:
            keep_dtype: return float16 where it is stored, instead of float32 (numpy has no bfloat16).
        """
        return self._read(self.rows, raw=False, keep=keep_dtype)

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """The values `[row, ...]` of rows of the file, given by their indices `[row]`, whichever are selected."""
        return replace(self, rows=rows).to_numpy()

    def to_torch(self, *, keep_dtype: bool = False) -> Tensor:
        """Reads the array as a tensor; `keep_dtype` returns float16 and bfloat16 where they are stored."""
        import torch

        if keep_dtype and self.dtype_stored == BFLOAT16:
            return torch.from_numpy(self._read(self.rows, raw=True, keep=True).view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(self.to_numpy(keep_dtype=keep_dtype))

    def batches(self, rows: int = 8192) -> Iterator[np.ndarray]:
        """Reads `rows` rows at a time, in order."""
        if rows < 1:
            raise RecordingError(f"rows must be at least 1; got {rows}")
        for start in range(0, len(self.rows), rows):
            yield self._read(self.rows[start : start + rows], raw=False, keep=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.to_numpy()
        return values if dtype is None else values.astype(dtype)

    def _pick(self, name: str, selector: Selector, among: np.ndarray) -> Picked:
        """Indices along the stored axis, for a selector that counts among the indices selected before."""
        if isinstance(selector, slice):
            ends = (selector.start, selector.stop)
            start, stop = (self._index(name, end, among) if isinstance(end, str) else end for end in ends)
            return among[start : stop : selector.step]
        if isinstance(selector, (str, int, np.integer)) and not isinstance(selector, bool):
            return int(among[self._index(name, selector, among)])
        items = listed(selector, len(among), f"{name!r} of {self.path}")
        return among[[self._index(name, item, among) for item in items]]

    def _index(self, name: str, item: Any, among: np.ndarray) -> int:
        """The position of a name or an index among the indices selected before."""
        if isinstance(item, str):
            names = [self.labels[name][i] for i in among] if self.labels.get(name) else []
            if item not in names:
                raise RecordingError(unknown(f"{name} in {self.path}", item, names))
            return names.index(item)
        if not -len(among) <= item < len(among):
            raise RecordingError(f"{self.path} has no index {item} along {name!r}, whose length is {len(among)}")
        return int(item)

    def _read(self, rows: np.ndarray, *, raw: bool, keep: bool) -> np.ndarray:
        """Reads bounding boxes of adjacent rows in file order, then takes the picked indices out of them.

        Args:
            raw: return the stored bits of bfloat16.
            keep: return float16 instead of float32.
        """
        if len(rows) > 1 and (np.diff(rows) < 0).any():  # otherwise each row would read its whole chunk again
            order = np.argsort(rows, kind="stable")
            ascending = self._read(rows[order], raw=raw, keep=keep)
            values = np.empty_like(ascending)
            values[order] = ascending
            return values
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
            is_contiguous = np.array_equal(chosen, np.arange(stop - start))  # also no row twice
            box = target if is_contiguous else np.empty(count, out.dtype)
            self.check_box([(start, stop), *boxes])
            with reading(Path(dataset.file.filename), self.path):
                dataset.id.read(h5py.h5s.create_simple(count), space, box, memory_type)
            if not is_contiguous:
                np.take(box, chosen, axis=0, out=target)
            done += n_rows
        out = _take(out, self.picks, boxes)
        if bits:
            return out if raw else bfloat16_numbers(out)
        return out.astype(np.float32) if out.dtype == np.float16 and not keep else out


def scalar_or_list(selector: Selector) -> Selector:
    """A selector whose 0-dimensional array or tensor is the number or name in it."""
    is_scalar = hasattr(selector, "__array__") and np.ndim(selector) == 0
    return np.asarray(selector).item() if is_scalar else selector  # type: ignore[no-any-return]


def listed(selector: Any, length: int | None, what: str) -> list[Any]:
    """The indices or names of a list or an array; a mask `[length]` selects the indices at which it is True.

    Raises:
        RecordingError: it is no list, a mask of another length, or has a number that is no integer.
    """
    if isinstance(selector, Iterable) and not hasattr(selector, "__array__"):
        selector = list(selector)
    try:
        values = np.asarray(selector)
    except ValueError:  # lists of other lengths in a list
        values = np.empty((0, 0))
    if values.ndim != 1:
        raise RecordingError(f"{what} takes an index, a name, a slice or a list; got {selector!r}")
    if values.dtype == bool and len(values) == length:
        return list(np.flatnonzero(values).tolist())
    items = values.tolist() if values.dtype.kind in "biuf" else list(selector)
    for item in items:
        if isinstance(item, bool | np.bool_) or (isinstance(item, float) and not item.is_integer()):
            mask = "" if length is None else f", or a mask of {length} booleans"
            raise RecordingError(f"{what} takes integers or names{mask}; got {len(items)} values such as {item!r}")
    return items


def _length(pick: Picked, length: int) -> int | None:
    return None if isinstance(pick, int) else len(range(length)[pick]) if isinstance(pick, slice) else len(pick)


def _box(pick: Picked, length: int) -> tuple[int, int]:
    """The first needed index and the one after the last."""
    if isinstance(pick, int):
        return pick, pick + 1
    if isinstance(pick, slice):
        return 0, length
    return (int(pick.min()), int(pick.max()) + 1) if len(pick) else (0, 0)


def _take(box: np.ndarray, picks: Sequence[Picked], boxes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Takes the picked indices of a bounding box, last axis first, so that dropping one keeps the others' positions."""
    for axis in range(len(picks), 0, -1):
        pick, (first, stop) = picks[axis - 1], boxes[axis - 1]
        if isinstance(pick, int):
            box = box.take(0, axis=axis)
        elif not isinstance(pick, slice) and not np.array_equal(pick, np.arange(first, stop)):
            box = box.take(pick - first, axis=axis)
    return box


def _spans(rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(start, stop, number of requested rows) of spans to read at once: [3, 4, 9] -> (3, 10, 3).

    Reading a few more rows costs less than another call of HDF5.
    """
    if not len(rows):
        return
    breaks = np.flatnonzero(np.diff(rows) > MAX_GAP) + 1
    for part in np.split(rows, breaks):
        for first in range(0, len(part), MAX_SPAN_ROWS):
            span = part[first : first + MAX_SPAN_ROWS]
            yield int(span[0]), int(span[-1]) + 1, len(span)

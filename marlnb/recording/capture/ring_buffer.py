"""InFlight: the rows of episodes that are still being played, in buffers that are allocated once.

Every step of all copies is one slot of a ring `[slot, env, ...]`; when an episode ends its slots are handed on
together, so that an episode's rows lie next to each other in the file however its copy was mixed with others.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import RecordingError
from marlnb.recording.file.layout import Field

MEMORY_BYTES = 2 * 1024**3
VIEWS = 64


class Seen:
    """The last tensor that came from one place, and its memory: a buffer that its owner fills anew is asked once.

    Args:
        dtype: the only one whose memory is read; None: any.
    Attributes:
        array: the memory of `tensor`; None where numpy cannot read it, or reads another type.
    """

    __slots__ = ("_dtype", "array", "tensor")

    def __init__(self, dtype: np.dtype | None = None) -> None:
        self._dtype = dtype
        self.tensor: Tensor | None = None
        self.array: np.ndarray | None = None

    def look(self, tensor: Tensor) -> np.ndarray | None:
        """`array`, now that `tensor` has come."""
        if tensor is not self.tensor:
            self.tensor = tensor
            try:
                array = tensor.numpy()
            except (TypeError, RuntimeError):  # on another device, a bfloat16, or one with a gradient
                array = None
            self.array = array if array is None or self._dtype in (None, array.dtype) else None
        return self.array


class InFlight:
    """A ring of `capacity` steps for each field; positions are counted from the beginning and never wrap.

    Args:
        fields: shapes of one copy's row.
        capacity: steps held at first; it doubles when an episode is longer.
        folder: where buffers that would take more than `MEMORY_BYTES` lie instead, in files without a name.
    """

    def __init__(self, fields: Sequence[Field], n_envs: int, capacity: int, folder: Path) -> None:
        self.fields, self.n_envs, self.capacity, self.folder = fields, n_envs, capacity, folder
        self.position = 0
        self._seen = [Seen(field.stored_dtype) for field in fields]
        self._allocate()

    def put(self, indices: Sequence[int], sources: Sequence[Tensor]) -> None:
        """Takes the tensors `[env, ...]` of these fields for the current slot.

        Buffers that the environment fills anew at each step are known after two, and are plain memory from then on, as
        is what numpy can read of others.
        """
        slot = self.position % self.capacity
        targets, others = [], []
        for index, source in zip(indices, sources):
            array = self._seen[index].look(source)
            if array is None:
                targets.append(self._target(index, slot))
                others.append(source)
            else:
                self._arrays[index][slot] = array
        if others:
            torch._foreach_copy_(targets, others)  # one call: Python between copies costs more than the copies

    def fill(self, index: int, position: int, values: np.ndarray | list[Tensor]) -> None:
        """Takes a field's values for the steps from `position` on, whose slots lie side by side.

        values: `[step, env, ...]`, of the type that is stored; or for each step a tensor `[env, ...]` of any type.
        """
        slot = position % self.capacity
        if isinstance(values, np.ndarray):
            self._arrays[index][slot : slot + len(values)] = values
            return
        target = self._buffers[index][slot : slot + len(values)]
        if values[0].dtype == target.dtype:
            torch.cat(values, out=target.flatten(0, 1))
        else:
            target.flatten(0, 1).copy_(torch.cat(values))

    def _target(self, index: int, slot: int) -> Tensor:
        """Field `index` of a slot; views are made many at a time, when the first of them is needed."""
        key = index, slot // VIEWS
        views = self._views.get(key)
        if views is None:
            first = key[1] * VIEWS
            views = self._views[key] = self._buffers[index][first : first + VIEWS].unbind(0)
        return views[slot % VIEWS]

    def rows(self, index: int, flat: np.ndarray) -> np.ndarray:
        """Field `index`, `[row, ...]`, as the bytes that are written; flat: `[row]`, slot × copies + copy."""
        array = self._arrays[index]
        return array.reshape(-1, *array.shape[2:]).take(flat, axis=0)

    def tensor_rows(self, index: int, flat: np.ndarray) -> Tensor:
        """The same as a tensor of the field's own type."""
        return torch.from_numpy(self.rows(index, flat)).view(self.fields[index].torch_dtype)

    def grow(self, oldest: int) -> None:
        """Doubles the capacity, keeping positions `oldest` to now."""
        before, capacity = self._arrays, self.capacity
        self.capacity *= 2
        self._allocate()
        for position in range(oldest, self.position):
            for old, new in zip(before, self._arrays):
                new[position % self.capacity] = old[position % capacity]

    def _allocate(self) -> None:
        size_bytes = self.n_envs * self.capacity * sum(field.row_bytes for field in self.fields)
        on_disk = size_bytes > MEMORY_BYTES
        self._arrays = [self._buffer(field, on_disk) for field in self.fields]
        self._buffers = [
            torch.from_numpy(array).view(field.torch_dtype) for array, field in zip(self._arrays, self.fields)
        ]
        self._views: dict[tuple[int, int], Sequence[Tensor]] = {}

    def _buffer(self, field: Field, on_disk: bool) -> np.ndarray:
        shape = (self.capacity, self.n_envs, *field.shape)
        if not on_disk:
            return np.empty(shape, field.stored_dtype)
        return _nameless_file(prod(shape) * field.item_bytes, self.folder).view(field.stored_dtype).reshape(shape)


def _nameless_file(size_bytes: int, folder: Path) -> np.ndarray:
    """Bytes backed by a file that vanishes with the process; its space is claimed now, so that no write can fail."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError as error:
            raise RecordingError(
                f"episodes in progress need {size_bytes / 1e9:.1f} GB beside the recording in {folder}, "
                f"which cannot be had: {error.strerror}; record with fewer copies (n_envs)"
            ) from error
        return np.memmap(file, np.uint8, "r+", shape=(size_bytes,))

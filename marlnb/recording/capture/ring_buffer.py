"""RingBuffer: holds the recorded steps of episodes that are still being played, in buffers that are allocated once.

One slot `[slot, env, ...]` holds one step of all envs. When an episode ends, its rows are taken out of the slots
together, so that an episode's rows are adjacent in the file however its env was interleaved with others.
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

from marlnb.display.formatting import format_bytes
from marlnb.errors import RecordingError
from marlnb.recording.file.layout import Field

MAX_MEMORY_BYTES = 2 * 1024**3
N_VIEWS = 64


class RingBuffer:
    """A ring of `capacity` steps for each field. Positions count from the first step and never wrap.

    Args:
        fields: one row of one env per field.
        n_envs: envs in each slot.
        capacity: slots at first; `grow` doubles them when an episode is longer.
        folder: where buffers above `MAX_MEMORY_BYTES` are kept, in files without a name.
    Attributes:
        position: of the step that is written next.
    """

    def __init__(self, fields: Sequence[Field], n_envs: int, capacity: int, folder: Path) -> None:
        self.fields, self.n_envs, self.capacity, self.folder = fields, n_envs, capacity, folder
        self.position = 0
        self._allocate()

    def put(self, first: int, tensors: list[Tensor]) -> None:
        """Copies `[env, ...]` tensors into the current slot, for the fields `first`, `first + 1`, ..."""
        views = self._slot_views(self.position % self.capacity)
        # One call copies all fields: between separate calls, Python costs more than the copies.
        torch._foreach_copy_(views[first : first + len(tensors)], tensors)

    def rows(self, index: int, flat_rows: np.ndarray) -> np.ndarray:
        """Field `index` at these rows, `[row, ...]`, as the bytes that are stored.

        Args:
            flat_rows: `[row]`, each slot * n_envs + env_index.
        """
        array = self._arrays[index]
        return array.reshape(-1, *array.shape[2:]).take(flat_rows, axis=0)

    def tensor_rows(self, index: int, flat_rows: np.ndarray) -> Tensor:
        """As `rows`, as a tensor of the field's dtype."""
        return torch.from_numpy(self.rows(index, flat_rows)).view(self.fields[index].torch_dtype)

    def grow(self, oldest: int) -> None:
        """Doubles the capacity and keeps the positions from `oldest` on."""
        old_arrays, old_capacity = self._arrays, self.capacity
        self.capacity *= 2
        self._allocate()
        for position in range(oldest, self.position):
            for old, new in zip(old_arrays, self._arrays):
                new[position % self.capacity] = old[position % old_capacity]

    def _allocate(self) -> None:
        size_bytes = self.n_envs * self.capacity * sum(field.row_bytes for field in self.fields)
        self._arrays = [self._allocate_field(field, on_disk=size_bytes > MAX_MEMORY_BYTES) for field in self.fields]
        self._tensors = [
            torch.from_numpy(array).view(field.torch_dtype) for array, field in zip(self._arrays, self.fields)
        ]
        self._views: dict[int, tuple[Tensor, ...]] = {}

    def _slot_views(self, slot: int) -> tuple[Tensor, ...]:
        """Each field's view of a slot. Views are made for `N_VIEWS` slots at once, which costs little more than one."""
        if slot not in self._views:
            first = slot // N_VIEWS * N_VIEWS
            by_field = [tensor[first : first + N_VIEWS].unbind(0) for tensor in self._tensors]
            self._views.update(enumerate(zip(*by_field), first))
        return self._views[slot]

    def _allocate_field(self, field: Field, *, on_disk: bool) -> np.ndarray:
        shape = (self.capacity, self.n_envs, *field.shape)
        if not on_disk:
            return np.empty(shape, field.stored_dtype)
        return _unnamed_file(prod(shape) * field.item_bytes, self.folder).view(field.stored_dtype).reshape(shape)


def _unnamed_file(size_bytes: int, folder: Path) -> np.ndarray:
    """Bytes of a file that disappears with the process. Its space is reserved now, so that no later write can fail."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError as error:
            free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
            raise RecordingError(
                f"buffering unfinished episodes needs {format_bytes(size_bytes)} of disk in {folder}, "
                f"but only {format_bytes(free)} is free ({error.strerror}); use fewer environments (n_envs)"
            ) from error
        return np.memmap(file, np.uint8, "r+", shape=(size_bytes,))

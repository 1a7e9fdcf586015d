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
from marlnb.recording.layout import Field

MEMORY_BYTES = 2 * 1024**3


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
        self._allocate()

    def put(self, first: int, sources: Sequence[Tensor]) -> None:
        """Copies the tensors `[env, ...]` of fields `first`, `first` + 1, ... into the current slot."""
        if not sources:
            return
        slot = self.position % self.capacity
        targets = self._slots.get(slot)
        if targets is None:
            targets = self._slots[slot] = [buffer[slot] for buffer in self._buffers]
        # one call for all fields: what a step costs is Python between copies, more than the copies (measured: a third)
        torch._foreach_copy_(targets[first : first + len(sources)], list(sources))

    def array(self, index: int) -> np.ndarray:
        """Field `index`, `[env, slot, ...]`, as the bytes that are written."""
        return self._arrays[index].swapaxes(0, 1)

    def tensor(self, index: int) -> Tensor:
        """The same as a tensor of the field's own type."""
        return self._buffers[index].transpose(0, 1)

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
        self._slots: dict[int, list[Tensor]] = {}

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

"""Block: collects one field's rows in the order of the file's chunks, until they are written."""

from __future__ import annotations

import itertools

import h5py
import numpy as np

from marlnb.recording.file.layout import Field, create_dataset


class Block:
    """One field's rows `[*cells, row, *cell]`, so that each chunk is contiguous."""

    def __init__(self, file: h5py.File, field: Field, rows: int) -> None:
        self.field, self.chunk_rows = field, field.chunk_rows(rows)
        cell = field.cell
        counts = tuple(length // size for length, size in zip(field.shape, cell))
        self.storage = np.zeros((*counts, rows, *cell), field.stored_dtype)
        n = len(cell)
        by_row = [n, *itertools.chain.from_iterable((axis, n + 1 + axis) for axis in range(n))]
        self._by_row = self.storage.transpose(by_row)
        self._split = self._by_row.shape[1:]
        self._dataset = create_dataset(file, field, self.chunk_rows)
        self._cells = [(index, tuple(i * size for i, size in zip(index, cell))) for index in np.ndindex(*counts)]

    def put(self, start: int, source: np.ndarray) -> None:
        """Copies `[episode, t, ...]` to the rows from `start` on."""
        n_episodes, length = source.shape[:2]
        target = self._by_row[start : start + n_episodes * length]
        target.reshape(n_episodes, length, *self._split)[...] = source.reshape(n_episodes, length, *self._split)

    def write(self, start: int, written: int, n_rows: int) -> None:
        """Writes the block's first `n_rows` rows to rows from `start` on, except chunks that are `written` already."""
        dataset = self._dataset.id
        dataset.set_extent((start + n_rows, *self.field.shape))
        write = dataset.write_direct_chunk
        for row in range(written // self.chunk_rows * self.chunk_rows, n_rows, self.chunk_rows):
            for index, offset in self._cells:
                write((start + row, *offset), self.storage[index][row : row + self.chunk_rows])

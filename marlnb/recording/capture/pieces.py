"""Pieces: where fields lie in the one memory of an environment, and the copies of it that are kept instead of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from marlnb.recording.capture.sources import Source


class Piece:
    """Where one field's tensor lies, at every step."""

    def __init__(self, index: int, source: Source, array: np.ndarray) -> None:
        self.index, self.source = index, source
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.address = array.ctypes.data
        self.end = self.address + sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize

    def of(self, rows: np.ndarray, address: int) -> np.ndarray:
        """`[step, ...]`, out of copies `[step, byte]` of memory that begins at this address."""
        strides = (rows.strides[0], *self.strides)
        return np.ndarray((len(rows), *self.shape), self.dtype, rows, self.address - address, strides)


def memory_range(pieces: Sequence[Piece]) -> tuple[int, int]:
    """The addresses between which they lie."""
    return min(piece.address for piece in pieces), max(piece.end for piece in pieces)


def piece_in(memory: np.ndarray, index: int, source: Source, seen: Sequence[Tensor]) -> Piece | None:
    """None for tensors that lie elsewhere, or not always in the same place, or are to be converted."""
    if len({(x.data_ptr(), x.stride(), x.shape) for x in seen}) > 1 or seen[0].device.type != "cpu":
        return None
    try:
        array = seen[0].numpy()
    except (TypeError, RuntimeError):  # a bfloat16, or one with a gradient
        return None
    piece = Piece(index, source, array)
    inside = memory.ctypes.data <= piece.address and piece.end <= memory.ctypes.data + memory.nbytes
    return piece if inside and array.size and array.dtype == source.field.stored_dtype else None


class Copies:
    """Copies of a piece of memory, from before and after each of some steps.

    Where steps follow one another the copy after one is that before the next.

    Args:
        memory: of bytes; address: of its first.
        steps: that have room.
    """

    def __init__(self, memory: memoryview, address: int, steps: int) -> None:
        self.memory, self.address = memory, address
        # each step's own two, that which was left before the first, and that before the step for which there is no room
        self._rows = np.empty((2 * steps + 2, len(memory)), np.uint8)
        self._slots = [row.data for row in self._rows]
        self._n = 0  # rows that are filled
        self._follows = False  # whether the last of them is what the memory holds
        self._before: list[int] = []
        self._after: list[int] = []

    def break_off(self) -> None:
        """The next step does not follow the last."""
        self._follows = False

    def before(self) -> None:
        """Before a step."""
        if not self._follows:
            self._slots[self._n][:] = self.memory
            self._n += 1
            self._follows = True

    def after(self) -> None:
        """After it."""
        self._slots[self._n][:] = self.memory
        self.took(1)

    def following(self) -> Iterator[memoryview]:
        """Where to put the memory after each of the next steps, one after another, until `clear`; `took` is to be told
        of them."""
        return iter(self._slots[self._n :])

    def took(self, steps: int) -> None:
        """So many steps have followed."""
        self._before += range(self._n - 1, self._n + steps - 1)
        self._after += range(self._n, self._n + steps)
        self._n += steps

    def taken(self) -> tuple[np.ndarray, np.ndarray]:
        """`[step, byte]`, before and after each step since `clear`; valid until then."""
        return self._side(self._before), self._side(self._after)

    def clear(self) -> None:
        """All may be written over, but for what the memory holds now."""
        if self._follows:
            self._rows[0] = self._rows[self._n - 1]
        self._n = int(self._follows)
        self._before.clear()
        self._after.clear()

    def _side(self, rows: list[int]) -> np.ndarray:
        alongside = rows[-1] - rows[0] == len(rows) - 1
        return self._rows[rows[0] : rows[-1] + 1] if alongside else self._rows[rows]

"""Pieces: where fields lie in the one memory of an environment, whose bytes are kept at each step instead of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from marlnb.recording.sources import Source


class Piece:
    """Where one field's tensor lies, at every step."""

    def __init__(self, index: int, source: Source, array: np.ndarray) -> None:
        self.index, self.source = index, source
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.address = array.ctypes.data
        self.end = self.address + sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize


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

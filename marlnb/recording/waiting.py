"""Waiting: what was taken at one of a step's two moments and waits to be copied into the ring, many steps at once.

After a step of an environment the ring and torch's code have left the processor's cache: there, each tensor costs as
much as a dozen that follow one another. So the first steps are copied at once and show where tensors lie; from then on
a step keeps the bytes of the environment's one piece of memory, and the moment itself for what nobody writes to again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import RecordingError, SiteError
from marlnb.recording.inflight import InFlight
from marlnb.recording.layout import Field
from marlnb.recording.sources import Source

LOOKS = 8  # steps that show where tensors lie
STEPS = 64  # that wait at most
STEP_BYTES = 16 * 1024  # of one tensor, or piece of memory: more is not given back at once, and must be asked for anew


class Waiting:
    """Takes what some sources read into fields `first`, `first` + 1, ... of the ring's current step.

    Args:
        activations: what `capture` fills, some of the sources read from, and is emptied at each step.
    Attributes:
        memory: the one that the environment's tensors lie in (`Step.memory`), to be told while it `learns`.
    """

    def __init__(
        self, ring: InFlight, first: int, sources: Sequence[Source], activations: dict[str, Tensor] | None = None
    ) -> None:
        self._ring, self._first, self._sources = ring, first, sources
        self._activations = {} if activations is None else activations
        self._sites = {
            path.removeprefix("activations/")
            for path in (source.field.path for source in sources)
            if path.startswith("activations/")
        }
        self._direct = [(first + place, source.get) for place, source in enumerate(sources)]
        self._after = first + len(sources)
        self.learns = bool(sources)
        self.memory: np.ndarray | None = None
        self._looks: list[list[Tensor]] = []
        self._as_seen: list[list[Tensor]] = []  # of the same, as they were
        self._lasting: list[tuple[int, Field, Callable[[Any], Tensor], int]] = []
        self._pieces: list[_Piece] = []
        self._bytes: np.ndarray | None = None
        self._position = 0  # of the first step that waits
        self._copies: list[bytes] = []
        self._moments: list[Any] = []
        self._fired: list[dict[str, Tensor]] = []
        self._last: Any = None

    def take(self, what: Any, values: Sequence[Tensor] = ()) -> None:
        """A moment, or a step, of which the ring's current position is to hold everything.

        Args:
            values: of the fields that follow on the sources', copied at once.
        Raises:
            SiteError: a site did not fire.
        """
        ring = self._ring
        if self._sites and not self._sites <= self._activations.keys():
            missing = ", ".join(sorted(self._sites - self._activations.keys()))
            raise SiteError(f"the site {missing} fired at first, but not at every step")
        if self.learns:
            self._learn(what)
        else:
            if len(self._moments) >= STEPS or len(self._copies) >= STEPS or not ring.position % ring.capacity:
                self.copy()
            if self._last is None:
                self._position = ring.position
            self._last = what
            if self._bytes is not None:
                self._copies.append(self._bytes.tobytes())
            if self._lasting:
                if self._sites:
                    self._fired.append(dict(self._activations))
                self._moments.append(what)
            if self._direct:
                ring.put([index for index, _ in self._direct], [get(what) for _, get in self._direct])
        if values:
            ring.put(range(self._after, self._after + len(values)), values)
        if self._sites:
            self._activations.clear()

    def copy(self) -> None:
        """Copies what waits.

        Raises:
            RecordingError: something has been written to that must not be.
        """
        if self._last is None:
            return
        if self._copies:
            self._copy_pieces()
        if self._moments:
            self._copy_lasting()
        self._last = None
        self._copies.clear()
        self._moments.clear()
        self._fired.clear()

    def _copy_pieces(self) -> None:
        assert self._bytes is not None
        for piece in self._pieces:
            if piece.get(self._last).data_ptr() != piece.address:
                raise RecordingError(
                    f"{piece.path}: the environment's tensor is no longer where it was, though its steps have a memory "
                    f"in which all of them lie"
                )
        taken, n_bytes = bytearray().join(self._copies), self._bytes.nbytes
        for piece in self._pieces:
            strides = (n_bytes, *piece.strides)
            shape = (len(self._copies), *piece.shape)
            values = np.ndarray(shape, piece.dtype, taken, piece.address - self._bytes.ctypes.data, strides)
            self._ring.fill(piece.index, self._position, values)

    def _copy_lasting(self) -> None:
        columns: list[list[Tensor]] = [[] for _ in self._lasting]
        getters = [get for _, _, get, _ in self._lasting]
        for place, moment in enumerate(self._moments):
            if self._sites:
                self._activations.update(self._fired[place])
            for column, get in zip(columns, getters):
                column.append(get(moment))
        if self._sites:
            self._activations.clear()
        for column, (index, item, _, version) in zip(columns, self._lasting):
            each = {id(tensor): tensor for tensor in column}.values()
            if any(x._version != version for x in each) or len({x.data_ptr() for x in each}) < len(each):
                raise RecordingError(
                    f"{item.path}: what a policy put out was written to again within {STEPS} steps, and not within the "
                    f"first {LOOKS}; a policy gives each step tensors of its own, or the same from the start"
                )
            self._ring.fill(index, self._position, torch.stack(column))

    def _learn(self, what: Any) -> None:
        """Copies a step's tensors, and keeps them so that none's memory is given to another."""
        tensors = [get(what) for _, get in self._direct]
        self._ring.put([index for index, _ in self._direct], tensors)
        self._looks.append(tensors)
        self._as_seen.append([x.clone() if source.lasts else x for source, x in zip(self._sources, tensors)])
        if len(self._looks) == LOOKS:
            self._decide()
            self.learns = False
            self._looks.clear()
            self._as_seen.clear()

    def _decide(self) -> None:
        direct, pieces = [], []
        each = zip(self._direct, self._sources, zip(*self._looks), zip(*self._as_seen))
        for (index, get), source, seen, copies in each:
            piece = None if self.memory is None else _piece(index, source, seen, self.memory)
            if source.lasts and _have_their_own(seen) and all(map(torch.equal, seen, copies)):
                self._lasting.append((index, source.field, get, seen[0]._version))
            elif piece is not None:
                pieces.append(piece)
            else:
                direct.append((index, get))
        if pieces and self.memory is not None:
            begin = min(piece.address for piece in pieces) - self.memory.ctypes.data
            end = max(piece.end for piece in pieces) - self.memory.ctypes.data
            if end - begin <= STEP_BYTES:
                self._pieces, self._bytes = pieces, self.memory[begin:end]
            else:
                direct += [(piece.index, piece.get) for piece in pieces]
        self._direct = direct


class _Piece:
    """Where one field's tensor lies, at every step."""

    def __init__(self, index: int, source: Source, array: np.ndarray) -> None:
        self.index, self.path, self.get = index, source.field.path, source.get
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.address = array.ctypes.data
        self.end = self.address + sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize


def _piece(index: int, source: Source, seen: Sequence[Tensor], memory: np.ndarray) -> _Piece | None:
    """None for tensors that lie elsewhere, or not always in the same place, or are to be converted."""
    if len({(x.data_ptr(), x.stride(), x.shape) for x in seen}) > 1 or seen[0].device.type != "cpu":
        return None
    try:
        array = seen[0].numpy()
    except (TypeError, RuntimeError):  # a bfloat16, or one with a gradient
        return None
    piece = _Piece(index, source, array)
    inside = memory.ctypes.data <= piece.address and piece.end <= memory.ctypes.data + memory.nbytes
    return piece if inside and array.size and array.dtype == source.field.stored_dtype else None


def _have_their_own(seen: Sequence[Tensor]) -> bool:
    """Whether these tensors are small and each has memory of its own, which tells when it is written to."""
    if any(x.device.type != "cpu" or x.is_inference() for x in seen):
        return False
    storages = [x.untyped_storage() for x in seen]
    own = {storage.data_ptr() for storage in storages}
    return (
        len(own) == len(seen)
        and max(storage.nbytes() for storage in storages) <= STEP_BYTES
        and len({x._version for x in seen}) == 1
    )

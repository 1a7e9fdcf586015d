"""Waiting: what was read before and after a step and waits to be copied into the ring, many steps at once.

After a step of an environment the ring and torch's code have left the processor's cache: there, each tensor costs as
much as a dozen that follow one another. So the first steps are copied at once and show where tensors lie; from then on
a step keeps a copy of the environment's one piece of memory, which is also what the next moment finds, and the
policies' outputs, which nobody writes to again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marlnb.errors import RecordingError, SiteError
from marlnb.recording.capture.pieces import Copies, Piece, memory_range, piece_in
from marlnb.recording.capture.ring_buffer import InFlight
from marlnb.recording.capture.sources import Source

LOOKS = 8  # steps that show where tensors lie
STEPS = 64  # that wait at most
STEP_BYTES = 16 * 1024  # of one tensor, or piece of memory: more is not given back at once, and must be asked for anew

VERSION = attrgetter("_version")


class Waiting:
    """Takes what is read before and after each step, for the ring's fields in that order.

    Args:
        before, after: the sources; those `before` read a moment, those `after` a step.
        between: fields between theirs, of values that are handed over with the moment.
        activations: what `capture` fills, some of the sources read from, and is emptied at each step.
        keep: what is to be held of a moment; late: reads a source that lasts from that, later.
    Attributes:
        only_waits: as long as the steps follow one another, nothing is to be done before or after one but to keep what
            lasts and a copy of the memory.
        copies: of the part of the environment's memory from which something is read; None where there is none.
    """

    def __init__(
        self,
        ring: InFlight,
        before: Sequence[Source],
        after: Sequence[Source] = (),
        *,
        between: int = 0,
        activations: dict[str, Tensor] | None = None,
        keep: Callable[[Any], Any] = lambda time_step: time_step,
        late: Callable[[Source], Callable[[Any], Tensor]] = lambda source: source.get,
    ) -> None:
        self._ring, self._keep, self._late = ring, keep, late
        self._between = range(len(before), len(before) + between)
        self._activations = {} if activations is None else activations
        self._sites = {
            path.removeprefix("activations/")
            for path in (source.field.path for source in before)
            if path.startswith("activations/")
        }
        self._before, self._after = _Side(0, before), _Side(len(before) + between, after)
        self._looks = 0
        self.only_waits = False
        self.copies: Copies | None = None
        self._position = 0  # of the first step that waits
        self._room = 0  # steps until what waits must be copied
        self._moments: list[Any] = []
        self._fired: list[dict[str, Tensor]] = []
        self._last: tuple[Any, Any] | None = None

    def begin(self) -> None:
        """The next moment does not follow the step before, or need not."""
        self.only_waits = False
        if self.copies is not None:
            self.copies.break_off()

    def before(self, time_step: Any, values: Sequence[Tensor] = ()) -> None:
        """A moment of which the ring's current position is to hold everything.

        Args:
            values: of the fields between, copied at once.
        Raises:
            SiteError: a site did not fire.
        """
        if self._sites and not self._sites <= self._activations.keys():
            missing = ", ".join(sorted(self._sites - self._activations.keys()))
            raise SiteError(f"the site {missing} fired at first, but not at every step")
        if values:
            self._ring.put(self._between, values)
        if self._looks < LOOKS:
            self._before.look(self._ring, time_step)
        else:
            if self.copies is not None:
                self.copies.before()
            if self._before.direct:
                self._before.put(self._ring, time_step)
            if self._sites:
                self._fired.append(dict(self._activations))
            self.only_waits = not (self._sites or self._before.direct or self._between or self._after.direct)
        if self._sites:
            self._activations.clear()

    def after(self, time_step: Any, step: Any, memory: np.ndarray | None = None) -> None:
        """The step that followed `moment`; the ring's position is still that moment's.

        memory: in which the environment's tensors lie (`Step.memory`).
        """
        if self._looks < LOOKS:
            self._learn(step, memory)
            return
        if not self._room:
            fired, self._fired = self._fired[-1:], self._fired[:-1]  # the last is of this step
            self._make_room()
            self._fired = fired
        if self._after.direct:
            self._after.put(self._ring, step)
        if self.copies is not None:
            self.copies.after()
        self._kept([self._keep(time_step)], time_step, step)

    def after_many(self, kept: Sequence[Any], time_step: Any, step: Any) -> None:
        """The last steps, no more than `room`, each of which `only_waits`; the memory was put where `copies` said.

        Args:
            kept: what `keep` gives of each moment.
            moment, step: the last.
        """
        if self.copies is not None:
            self.copies.took(len(kept))
        self._kept(kept, time_step, step)

    def _kept(self, kept: Sequence[Any], time_step: Any, step: Any) -> None:
        self._room -= len(kept)
        if self._before.lasting:
            self._moments += kept
        self._last = time_step, step

    @property
    def room(self) -> int:
        """Steps that may wait until these are copied; to be asked between steps."""
        if not self._room:
            self._make_room()
        return self._room

    def _make_room(self) -> None:
        """For as many steps as may wait, whose slots lie side by side in the ring."""
        self.copy()
        self._position = self._ring.position
        self._room = min(STEPS, self._ring.capacity - self._position % self._ring.capacity)

    def copy(self) -> None:
        """Copies what waits: all steps before this.

        Raises:
            RecordingError: something has been written to that must not be.
        """
        if self._last is None:
            return
        if self.copies is not None:
            for side, what, rows in zip((self._before, self._after), self._last, self.copies.taken()):
                side.fill(self._ring, self._position, what, rows, self.copies.address)
            self.copies.clear()
        if self._moments:
            self._copy_lasting()
        self._last, self._room = None, 0
        self._moments.clear()
        self._fired.clear()

    def _copy_lasting(self) -> None:
        if self._sites:
            columns = self._columns_fired()
        else:
            columns = [list(map(self._late(source), self._moments)) for _, source, _ in self._before.lasting]
        for column, (index, source, version) in zip(columns, self._before.lasting):
            own = len(set(map(Tensor.data_ptr, column))) == len(column)
            if set(map(VERSION, column)) != {version} or (not own and _share_memory(column)):
                raise RecordingError(
                    f"{source.field.path}: what a policy put out was written to again within {STEPS} steps, and not "
                    f"within the first {LOOKS}; a policy gives each step tensors of its own, or the same from the start"
                )
            self._ring.fill(index, self._position, column)

    def _columns_fired(self) -> list[list[Tensor]]:
        """What lasts `[source, step]`, where some of it is read from what had fired at the step."""
        columns: list[list[Tensor]] = [[] for _ in self._before.lasting]
        getters = [self._late(source) for _, source, _ in self._before.lasting]
        for time_step, fired in zip(self._moments, self._fired):
            self._activations.update(fired)
            for column, get in zip(columns, getters):
                column.append(get(time_step))
        self._activations.clear()
        return columns

    def _learn(self, step: Any, memory: np.ndarray | None) -> None:
        self._after.look(self._ring, step)
        self._looks += 1
        if self._looks < LOOKS:
            return
        for side in (self._before, self._after):
            side.decide(memory)
        pieces = [*self._before.pieces, *self._after.pieces]
        if memory is None or not pieces:
            return
        begin, end = memory_range(pieces)
        if end - begin > STEP_BYTES:
            for side in (self._before, self._after):
                side.put_directly()
            return
        first = begin - memory.ctypes.data
        self.copies = Copies(memory[first : first + end - begin].data, begin, STEPS)


class _Side:
    """The sources that are read before a step, or those that are read after it.

    Attributes:
        direct: indices of fields and sources, of what is copied at each step; pieces: where those lie that come from
            the memory, of which copies are kept; lasting: indices, sources and versions of what waits as it is.
    """

    def __init__(self, first: int, sources: Sequence[Source]) -> None:
        self.direct = [(first + place, source) for place, source in enumerate(sources)]
        self.pieces: list[Piece] = []
        self.lasting: list[tuple[int, Source, int]] = []
        self._seen: list[list[Tensor]] = []  # kept, so that none's memory is given to another
        self._as_seen: list[list[Tensor]] = []  # of the same, as they were

    def put(self, ring: InFlight, what: Any) -> None:
        ring.put([index for index, _ in self.direct], [source.get(what) for _, source in self.direct])

    def look(self, ring: InFlight, what: Any) -> None:
        """Copies, and learns where tensors lie."""
        tensors = [source.get(what) for _, source in self.direct]
        ring.put([index for index, _ in self.direct], tensors)
        self._seen.append(tensors)
        self._as_seen.append([x.clone() if source.lasts else x for (_, source), x in zip(self.direct, tensors)])

    def decide(self, memory: np.ndarray | None) -> None:
        """How each source is to be kept from now on; memory: the environment's, None where it has no such."""
        direct = []
        for (index, source), seen, copies in zip(self.direct, zip(*self._seen), zip(*self._as_seen)):
            piece = None if memory is None else piece_in(memory, index, source, seen)
            if source.lasts and _have_their_own(seen) and all(map(torch.equal, seen, copies)):
                self.lasting.append((index, source, seen[0]._version))
            elif piece is not None:
                self.pieces.append(piece)
            else:
                direct.append((index, source))
        self.direct = direct
        self._seen.clear()
        self._as_seen.clear()

    def put_directly(self) -> None:
        """The memory is not to be kept."""
        self.direct += [(piece.index, piece.source) for piece in self.pieces]
        self.pieces.clear()

    def fill(self, ring: InFlight, position: int, what: Any, rows: np.ndarray, address: int) -> None:
        """Copies what waits of the pieces, from this position on.

        Args:
            what: the last moment or step.
            rows: `[step, byte]`, copies of the memory whose first byte has this address.
        Raises:
            RecordingError: a piece has moved.
        """
        for piece in self.pieces:
            if piece.source.get(what).data_ptr() != piece.address:
                raise RecordingError(
                    f"{piece.source.field.path}: the environment's tensor is no longer where it was, though its steps "
                    f"have a memory in which all of them lie"
                )
            ring.fill(piece.index, position, piece.of(rows, address))


def _share_memory(column: Sequence[Tensor]) -> bool:
    """Whether some of these that are not the same tensor have the same memory."""
    return len(set(map(Tensor.data_ptr, column))) < len(set(map(id, column)))


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

"""Columns: every field of finished steps, taken from the buffers or computed from what lies there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from marlnb.recording.built_in_labels import MOMENT
from marlnb.recording.contents import Contents
from marlnb.recording.inflight import InFlight
from marlnb.recording.layout import BFLOAT16, Field

Slots = slice | np.ndarray


class Columns:
    """Fields of a recording, in the order of its file.

    Args:
        ring: holds `contents.buffered`; fields: the file's, in its order.
    """

    def __init__(self, contents: Contents, ring: InFlight, fields: Sequence[Field]) -> None:
        self.contents, self._ring, self._fields = contents, ring, contents.fields
        paths = [item.path for item in self._fields]
        self._order = [paths.index(item.path) for item in fields]
        self._index = {item.path: index for index, item in enumerate(ring.fields)}
        self._critics_at = len(contents.before)
        by_step = [critic for critic in contents.critics if critic.by_step]
        self._after_at = self._critics_at + sum(len(critic.fields) for critic in by_step)

    def of(self, rows: slice, slots: Slots, numbers: np.ndarray) -> list[np.ndarray]:
        """Every field of these copies and slots, `[copy, slot, ...]`, as the bytes that are stored.

        Args:
            numbers: `[copy, slot]`, of the episodes.
        """
        shape = numbers.shape
        found = [self._stored(index, self._fields[index], rows, slots) for index in range(self._critics_at)]
        found += self._of_critics(rows, slots, shape)
        for actor in self.contents.actors:
            inputs = self.contents.inputs[actor.selection.group.name]
            entering = None if inputs.recurrent is None else self._rows_of(inputs.recurrent, rows, slots)
            inside = actor.evaluate(self._rows_of(inputs.observation, rows, slots), entering)
            found += _as_stored(inside, actor.fields, shape)
        if self.contents.labels is not None:
            told = self.contents.labels.tell(self._rows_of(MOMENT, rows, slots))
            found += _as_stored(told, self.contents.labels.fields, shape)
        after = range(self._after_at, self._after_at + len(self.contents.after))
        found += [self._ring.array(index)[rows, slots] for index in after]
        found += [np.broadcast_to(np.arange(rows.start, rows.stop)[:, None], shape), numbers]
        return [found[index] for index in self._order]

    def _of_critics(self, rows: slice, slots: Slots, shape: tuple[int, ...]) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        at = self._critics_at
        for critic in self.contents.critics:
            if critic.by_step:
                found += [self._ring.array(at + k)[rows, slots] for k in range(len(critic.fields))]
                at += len(critic.fields)
                continue
            state = self._rows_of("steps/state", rows, slots) if "steps/state" in self._index else None
            seen = {name: self._rows_of(each.observation, rows, slots) for name, each in self.contents.inputs.items()}
            found += _as_stored(critic.evaluate(seen, state), critic.fields, shape)
        return found

    def _stored(self, index: int, item: Field, rows: slice, slots: Slots) -> np.ndarray:
        if self._ring.fields[index].dtype == item.dtype:
            return self._ring.array(index)[rows, slots]
        return _bytes(self._ring.tensor(index)[rows, slots], item)

    def _rows_of(self, path: str, rows: slice, slots: Slots) -> Tensor:
        """A buffered field, `[row, ...]`."""
        return self._ring.tensor(self._index[path])[rows, slots].flatten(0, 1)


def _as_stored(outputs: Sequence[Tensor], fields: Sequence[Field], shape: tuple[int, ...]) -> list[np.ndarray]:
    """Tensors `[row, ...]` as `[copy, slot, ...]`, the bytes of their fields."""
    return [_bytes(output.reshape(*shape, *item.shape), item) for output, item in zip(outputs, fields, strict=True)]


def _bytes(tensor: Tensor, item: Field) -> np.ndarray:
    stored = tensor.detach().to("cpu", item.torch_dtype)
    return stored.view(torch.int16).numpy() if item.dtype == BFLOAT16 else stored.numpy()

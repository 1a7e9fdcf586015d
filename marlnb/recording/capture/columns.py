"""Columns: every field of finished steps, taken from the buffers or computed from what lies there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor

from marlnb.recording.capture.built_in_labels import MOMENT
from marlnb.recording.capture.ring_buffer import InFlight
from marlnb.recording.capture.schema import Contents
from marlnb.recording.file.layout import BFLOAT16, Field


class Columns:
    """Fields of a recording, in the order of its file.

    Args:
        ring: holds `contents.buffered`; fields: the file's, in its order.
    """

    def __init__(self, contents: Contents, ring: InFlight, fields: Sequence[Field]) -> None:
        self.contents, self._ring, self._fields = contents, ring, contents.fields
        self._actors: list[Callable[[Tensor, Tensor | None], list[Tensor]]] = []
        self._critics: dict[int, Callable[[Mapping[str, Tensor], Tensor | None], list[Tensor]]] = {}
        paths = [item.path for item in self._fields]
        self._order = [paths.index(item.path) for item in fields]
        self._index = {item.path: index for index, item in enumerate(ring.fields)}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """While the block runs the networks stand ready, for any number of `of`."""
        with ExitStack() as stack:
            self._actors = [stack.enter_context(actor.evaluating()) for actor in self.contents.actors]
            later = [critic for critic in self.contents.critics if not critic.by_step]
            self._critics = {id(critic): stack.enter_context(critic.evaluating()) for critic in later}
            yield

    def of(self, flat: np.ndarray, t: np.ndarray, copies: np.ndarray, numbers: np.ndarray) -> list[np.ndarray]:
        """Every field `[row, ...]`, as the bytes that are stored; inside `ready`.

        Args:
            flat: `[row]`, where each lies in the ring: slot × copies + copy.
            t, copies, numbers: `[row]`, of the steps, copies and episodes.
        """
        contents = self.contents
        seen = {name: self._tensor(each.observation, flat) for name, each in contents.inputs.items()}
        found = [self._stored(source.field, flat) for source in contents.before]
        found += self._of_critics(flat, seen)
        for actor, evaluate in zip(contents.actors, self._actors, strict=True):
            group = actor.selection.group.name
            recurrent = contents.inputs[group].recurrent
            entering = None if recurrent is None else self._tensor(recurrent, flat)
            found += _as_stored(evaluate(seen[group], entering), actor.fields)
        if contents.labels is not None:
            found += _as_stored(contents.labels.tell(self._tensor(MOMENT, flat)), contents.labels.fields)
        found += [self._stored(source.field, flat) for source in contents.after]
        found += [t, copies, numbers]
        return [found[index] for index in self._order]

    def _of_critics(self, flat: np.ndarray, seen: dict[str, Tensor]) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for critic in self.contents.critics:
            if critic.by_step:
                found += [self._stored(item, flat) for item in critic.fields]
                continue
            state = self._tensor("steps/state", flat) if "steps/state" in self._index else None
            found += _as_stored(self._critics[id(critic)](seen, state), critic.fields)
        return found

    def _stored(self, item: Field, flat: np.ndarray) -> np.ndarray:
        index = self._index[item.path]
        if self._ring.fields[index].dtype == item.dtype:
            return self._ring.rows(index, flat)
        return _bytes(self._ring.tensor_rows(index, flat), item)

    def _tensor(self, path: str, flat: np.ndarray) -> Tensor:
        """A buffered field, `[row, ...]`."""
        return self._ring.tensor_rows(self._index[path], flat)


def _as_stored(outputs: Sequence[Tensor], fields: Sequence[Field]) -> list[np.ndarray]:
    """Tensors `[row, ...]` as the bytes of their fields."""
    return [_bytes(output.reshape(-1, *item.shape), item) for output, item in zip(outputs, fields, strict=True)]


def _bytes(tensor: Tensor, item: Field) -> np.ndarray:
    stored = tensor.detach().to("cpu", item.torch_dtype)
    return stored.view(torch.int16).numpy() if item.dtype == BFLOAT16 else stored.numpy()

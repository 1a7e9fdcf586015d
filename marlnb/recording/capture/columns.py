"""Columns: every field of finished steps, taken from the ring buffer or computed from what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from torch import Tensor

from marlnb.recording.capture.labels import LABEL_STATE
from marlnb.recording.capture.ring_buffer import RingBuffer
from marlnb.recording.capture.schema import RecordingSchema
from marlnb.recording.file.layout import Field, stored_bytes


class Columns:
    """Computes the fields of a recording, in the order of its file.

    Args:
        ring: holds `schema.buffered`.
        fields: the file's fields, in its order.
    """

    def __init__(self, schema: RecordingSchema, ring: RingBuffer, fields: Sequence[Field]) -> None:
        self.schema, self._ring = schema, ring
        self._actors: list[Callable[[Tensor, Tensor | None], list[Tensor]]] = []
        self._critics: dict[int, Callable[[Mapping[str, Tensor], Tensor | None], list[Tensor]]] = {}
        paths = [item.path for item in schema.fields]
        self._order = [paths.index(item.path) for item in fields]
        labels = {f"labels/{label.name}": label for label in schema.label_specs}
        self._labels = [(index, labels[path]) for index, path in enumerate(paths) if path in labels]
        self._index = {item.path: index for index, item in enumerate(ring.fields)}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Prepares the networks once for any number of calls of `of` in the block."""
        with ExitStack() as stack:
            self._actors = [stack.enter_context(actor.evaluating()) for actor in self.schema.actors]
            per_episode = [critic for critic in self.schema.critics if not critic.by_step]
            self._critics = {id(critic): stack.enter_context(critic.evaluating()) for critic in per_episode}
            yield

    def of(self, flat_rows: np.ndarray, t: np.ndarray, envs: np.ndarray, episodes: np.ndarray) -> list[np.ndarray]:
        """Every field `[row, ...]`, as the bytes that are stored. Call it inside `ready`.

        Args:
            flat_rows: `[row]`, slot * n_envs + env_index in the ring.
            t: `[row]`, steps since the episode began.
            envs: `[row]`, env indices.
            episodes: `[row]`, episode numbers.

        Raises:
            EnvError: a value of the environment's label is not the index of a class.
        """
        schema = self.schema
        observations = {name: self._tensor(item.observation, flat_rows) for name, item in schema.inputs.items()}
        columns = [self._stored(source.field, flat_rows) for source in schema.before]
        for critic in schema.critics:
            if critic.by_step:
                columns += [self._stored(item, flat_rows) for item in critic.fields]
            else:
                state = self._tensor("steps/state", flat_rows) if "steps/state" in self._index else None
                columns += _as_stored(self._critics[id(critic)](observations, state), critic.fields)
        for actor, evaluate in zip(schema.actors, self._actors, strict=True):
            group = actor.selection.group.name
            recurrent = schema.inputs[group].recurrent
            entering = None if recurrent is None else self._tensor(recurrent, flat_rows)
            columns += _as_stored(evaluate(observations[group], entering), actor.fields)
        if schema.labels is not None:
            columns += _as_stored(schema.labels.compute(self._tensor(LABEL_STATE, flat_rows)), schema.labels.fields)
        columns += [self._stored(source.field, flat_rows) for source in schema.after]
        columns += [t, envs, episodes]
        for index, label in self._labels:
            label.check_classes(columns[index])
        return [columns[index] for index in self._order]

    def _stored(self, item: Field, flat_rows: np.ndarray) -> np.ndarray:
        index = self._index[item.path]
        if self._ring.fields[index].dtype == item.dtype:
            return self._ring.rows(index, flat_rows)
        return stored_bytes(self._ring.tensor_rows(index, flat_rows), item)

    def _tensor(self, path: str, flat_rows: np.ndarray) -> Tensor:
        """A buffered field, `[row, ...]`."""
        return self._ring.tensor_rows(self._index[path], flat_rows)


def _as_stored(tensors: Sequence[Tensor], fields: Sequence[Field]) -> list[np.ndarray]:
    """Tensors `[row, ...]` as the bytes of their fields."""
    return [stored_bytes(x.reshape(-1, *item.shape), item) for x, item in zip(tensors, fields, strict=True)]

"""RowBuffers: a ring of buffers through which rows leave the training's device while the training continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False)
class Slot:
    """One set of buffers.

    Attributes:
        on_device: by name, where the rollout's rows are copied first.
        on_host: the same in pinned memory; on a CPU the same tensors.
        copied: after which the host has them; None on a CPU.
        note: what the training says about these rows.
    """

    on_device: dict[str, Tensor] = field(default_factory=dict)
    on_host: dict[str, Tensor] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    copied: torch.cuda.Event | None = None
    note: Any = None

    def tensors(self) -> dict[str, Tensor]:
        """The rows on the host, once they are there."""
        if self.copied is not None:
            self.copied.synchronize()
        return {name: self.on_host[name] for name in self.names}


class RowBuffers:
    """`n_slots` sets of buffers, allocated once and filled in turn.

    `put` copies on the device and returns. A GPU then copies to the host on a stream of its own. The training
    waits only where the reader is `n_slots` rollouts behind.
    """

    def __init__(self, n_slots: int, device: torch.device) -> None:
        self._free: Queue[Slot] = Queue()
        self._full: Queue[Slot | None] = Queue()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        for _ in range(n_slots):
            self._free.put(Slot())

    def put(self, tensors: Mapping[str, Tensor], note: Any) -> None:
        """Copies tensors, which have the same shapes whenever they have the same names."""
        slot = self._free.get()
        for name, tensor in tensors.items():
            if name not in slot.on_device:
                slot.on_device[name] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
                slot.on_host[name] = (
                    slot.on_device[name]
                    if self._stream is None
                    else torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                )
            slot.on_device[name].copy_(tensor)
        slot.names, slot.note = tuple(tensors), note
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            with torch.cuda.stream(self._stream):
                for name in slot.names:
                    slot.on_host[name].copy_(slot.on_device[name], non_blocking=True)
                slot.copied = torch.cuda.Event()
                slot.copied.record(self._stream)
        self._full.put(slot)

    def take(self) -> Slot | None:
        """Waits for the next rows; `release` them afterwards. None: there are no more."""
        return self._full.get()

    def release(self, slot: Slot) -> None:
        self._free.put(slot)

    def close(self) -> None:
        """No more rows come."""
        self._full.put(None)

"""A CUDA graph without a GPU: it repeats the operations of one call on the same tensors, without Python.

After the call, also one that fails, and before each repetition every tensor that was made inside of it is filled with
garbage. So a function that reads
what an earlier call left in Python, or in a tensor that is not kept in one place, gives other numbers than before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from marlnb.envs.tensor.synchronisation import no_synchronisation

GARBAGE = 77


class FakeGraph:
    """As `marlnb.algorithms.captured.CUDAGraph`; it refuses what would wait for a device, as that does."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators, self._tape = generators, _Tape()

    def capture(self, function: Callable[[], Any]) -> Any:
        states = [generator.get_state() for generator in self._generators]
        try:
            with no_synchronisation(random=True), self._tape:
                return function()
        finally:  # a capture executes nothing
            self._tape.undo()
            self._tape.poison()
            for generator, state in zip(self._generators, states):
                generator.set_state(state)

    def freed(self) -> list[str]:
        """Forgets the call. Returns its operations on memory that only it holds, which a graph would use once freed."""
        return self._tape.freed()

    @torch.no_grad()
    def replay(self) -> None:
        self._tape.poison()
        for function, args, kwargs, outputs in self._tape.calls:
            again = function(*args, **kwargs)
            inputs = {_place(value) for value in _tensors((args, kwargs))}
            for kept, value in zip(_tensors(outputs), _tensors(again), strict=True):
                if _place(kept) not in inputs:  # neither a view of an argument nor written in place
                    kept.detach().copy_(value)


class _Tape(TorchDispatchMode):
    """Notes calls, and what they overwrite that was there before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._made: dict[int, Tensor] = {}
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in _written(func, args, kwargs):
            if _place(value) not in self._made and _place(value) not in self._before:
                self._before[_place(value)] = (value.untyped_storage(), value.untyped_storage().clone())
        outputs = func(*args, **kwargs)
        inputs = {_place(value) for value in _tensors((args, kwargs))}
        self._made |= {_place(value): value for value in _tensors(outputs) if _place(value) not in inputs}
        self.calls.append((func, args, kwargs, outputs))
        return outputs

    def freed(self) -> list[str]:
        held: dict[int, tuple[StorageWeakRef, str]] = {}
        for function, args, kwargs, _ in self.calls:
            for value in _tensors((args, kwargs)):
                if value.ndim and _place(value) not in self._made:  # a number is part of the operation
                    held[_place(value)] = StorageWeakRef(value.untyped_storage()), f"{function} {tuple(value.shape)}"
        self.calls.clear()
        self._made.clear()
        self._before.clear()
        del args, kwargs, value
        gc.collect()
        return [what for storage, what in held.values() if storage.expired()]

    def undo(self) -> None:
        for storage, before in self._before.values():
            storage.copy_(before)

    def poison(self) -> None:
        for value in self._made.values():
            if value.numel() and not value.is_floating_point():
                value.detach().fill_(GARBAGE if value.dtype not in (torch.bool, torch.uint8) else 1)
            elif value.numel():
                value.detach().fill_(float("nan"))


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a call writes to."""
    values = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            values.append(args[number] if number < len(args) else kwargs.get(argument.name))
    return _tensors(values)


def _tensors(tree: Any) -> list[Tensor]:
    return [value for value in tree_leaves(tree) if isinstance(value, Tensor)]


def _place(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()

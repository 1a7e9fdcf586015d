"""Captured: a function on tensors as a CUDA graph, launched as a whole instead of operation by operation.

A graph repeats the operations of one call at the same addresses, without Python. So the function takes no arguments,
keeps everything from call to call in tensors that stay where they are, and decides nothing by a value. Its result is
overwritten by the next call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

from marlnb.errors import MarlnbError

T = TypeVar("T")
WARM_UP_CALLS = 3  # before the capture: kernels are chosen and workspaces allocated, which a graph cannot do
MAX_REASON = 300


class Graph(Protocol):
    """What captures the operations of a call and repeats them."""

    def capture(self, function: Callable[[], T]) -> T:
        """Notes the operations of a call without executing them; returns the tensors that `replay` fills."""

    def replay(self) -> None:
        """Executes the operations."""


NewGraph = Callable[[Sequence[torch.Generator]], Graph]
"""Makes a graph of a function that draws from these generators."""


class CUDAGraph:
    """torch's graph of one device.

    Args:
        device: whose operations are captured.
        generators: that the function draws from.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]) -> None:
        self._device, self._graph = device, torch.cuda.CUDAGraph()
        for generator in generators:
            if hasattr(self._graph, "register_generator_state"):  # later versions of torch note generators as they draw
                self._graph.register_generator_state(generator)

    def capture(self, function: Callable[[], T]) -> T:
        torch.cuda.synchronize(self._device)
        # other threads may use the device meanwhile, as a FlightRecorder's does
        with torch.cuda.device(self._device), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            return function()

    def replay(self) -> None:
        self._graph.replay()


class Captured(Generic[T]):
    """`function`, executed as it is for the first calls, then captured, then repeated from the graph.

    Where it cannot be captured it is executed as it is every time, after one message.

    Args:
        name: for the message.
        function: as the module's docstring says.
        new_graph: makes a graph.
    Attributes:
        failed: whether it could not be captured.
    """

    def __init__(self, name: str, function: Callable[[], T], new_graph: Callable[[], Graph]) -> None:
        self._name, self._function, self._new_graph = name, function, new_graph
        self._graph: Graph | None = None
        self._result: Any = None
        self._n_calls = 0
        self.failed = False

    @property
    def is_captured(self) -> bool:
        return self._graph is not None

    def __call__(self) -> T:
        self._n_calls += 1
        if self.failed or self._n_calls <= WARM_UP_CALLS:
            return self._function()
        if self._graph is None:
            graph = self._new_graph()
            try:
                self._result = graph.capture(self._function)
            except (RuntimeError, MarlnbError) as error:  # nothing was executed
                self.failed = True
                say(f"{self._name} is not captured as a CUDA graph; the training continues without: {error}")
                return self._function()
            self._graph = graph
        self._graph.replay()
        result: T = self._result
        return result

    def forget(self) -> None:
        """Captures again: something has changed that the graph has as a number, such as the seed of a reset."""
        self._graph, self._result, self._n_calls = None, None, 0


def say(message: str) -> None:
    print(f"marlnb: {message[:MAX_REASON]}", file=sys.stderr, flush=True)

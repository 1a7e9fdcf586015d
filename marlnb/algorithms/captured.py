"""Captured: a function on tensors as a CUDA graph, launched as a whole instead of operation by operation.

A graph repeats the operations of one call at the same addresses, without Python. So the function takes no arguments,
keeps its state in tensors that are never reallocated, and has no branches that depend on a tensor's value. The next
call overwrites its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

from marlnb.display.notice import print_notice
from marlnb.errors import MarlnbError

T = TypeVar("T")
WARM_UP_CALLS = 3  # before the capture: kernels are chosen and workspaces allocated, which a graph cannot do


class Graph(Protocol):
    """Captures the operations of a call and repeats them."""

    def capture(self, function: Callable[[], T]) -> T:
        """Records the operations of a call without executing them; returns the tensors that `replay` fills."""

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
            if hasattr(self._graph, "register_generator_state"):  # later versions of torch do this by themselves
                self._graph.register_generator_state(generator)

    def capture(self, function: Callable[[], T]) -> T:
        torch.cuda.synchronize(self._device)
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            try:
                # other threads, such as a FlightRecorder's, may use the device during the capture
                with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                    return function()
            finally:  # torch leaves its own stream in use if the end of the capture raises an error
                torch.cuda.set_stream(stream)

    def replay(self) -> None:
        self._graph.replay()


class Captured(Generic[T]):
    """Calls `function` for the first WARM_UP_CALLS calls, captures it once, and then replays the graph.

    If the capture fails, a notice says why, and every call executes the function.

    Args:
        name: of the function, for the notice.
        function: what is captured; the module's docstring has its conditions.
        new_graph: makes a graph.
    Attributes:
        failed: whether the capture failed.
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
                print_notice(not_captured(self._name, str(error)))
                return self._function()
            self._graph = graph
        self._graph.replay()
        result: T = self._result
        return result

    def forget(self) -> None:
        """Captures again, since a number in the graph is out of date, such as the seed of a reset."""
        self._graph, self._result, self._n_calls = None, None, 0


def not_captured(what: str, reason: str) -> str:
    """The notice about something that is executed without a graph, and why."""
    return f"{what} is not captured as a CUDA graph; the training continues without one: {reason}"

"""Separate global generators of numpy, Python and torch for each env, for environments that draw from them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.random import get_bit_generator, set_bit_generator  # type: ignore[attr-defined]

from marlnb.envs.workers.spaces import leaves


@dataclass(frozen=True, eq=False)
class CopiedGenerator:
    """A global generator of the process that is swapped by copying its state, which takes microseconds.

    Attributes:
        get_state: a copy of its state; equal states are equal by `==`.
        set_state: restores a copy.
        seed: starts it from a number.
    """

    get_state: Callable[[], Any]
    set_state: Callable[[Any], object]
    seed: Callable[[int], object]


PYTHON = CopiedGenerator(random.getstate, random.setstate, random.seed)


@cache
def _copied_torch(generator: Any) -> CopiedGenerator:
    """torch's generator on the CPU."""
    import torch

    def set_state(state: bytes) -> None:
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    return CopiedGenerator(lambda: generator.get_state().numpy().tobytes(), set_state, generator.manual_seed)


def copied_generators() -> list[CopiedGenerator]:
    """Python's generator, and torch's if something has imported torch."""
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    return [PYTHON] if generator is None else [PYTHON, _copied_torch(generator)]


class _OwnState:
    """One env's state of a copied generator. It is swapped until the env has played an episode without drawing from it.

    That ends where the environment draws from it in a `reset`.
    """

    def __init__(self, generator: CopiedGenerator) -> None:
        self.generator, self.is_swapped = generator, True
        self._has_drawn, self._state = False, None

    def enter(self) -> None:
        self.generator.set_state(self._state)

    @contextmanager
    def reset(self, seed: int) -> Iterator[None]:
        before = None if self.is_swapped else self.generator.get_state()
        self.generator.seed(seed)
        self._state = self.generator.get_state()
        try:
            yield
            self.leave()
        finally:
            if before is not None:
                self.generator.set_state(before)

    def leave(self) -> None:
        state = self.generator.get_state()
        if state != self._state:
            self.is_swapped = self._has_drawn = True
        self._state = state

    def end_episode(self) -> None:
        self.is_swapped = self._has_drawn


class SeededSpaces:
    """One env's observation spaces, seeded for each episode until the env has played one without sampling them.

    Seeding a Dict takes a tenth of a millisecond.

    Args:
        spaces: not nested in each other.
    """

    def __init__(self, spaces: Sequence[Space[Any]]) -> None:
        self._spaces = spaces
        self._parts = [part for space in spaces for _, part in leaves(space)]
        self._are_sampled = True
        self._states: list[Any] = []

    def seed(self, seed: int) -> None:
        if self._are_sampled:
            for space in self._spaces:
                space.seed(seed)
            self._states = self._current()

    def end_episode(self) -> None:
        if self._are_sampled:
            self._are_sampled = self._current() != self._states

    def _current(self) -> list[Any]:
        return [part.np_random.bit_generator.state for part in self._parts]


class EnvGenerators:
    """One env's replacement for `np.random`, `random` and torch's generator; active from `enter` until another env's.

    Swapping numpy's generator costs nothing. The others are slow, so they are swapped where an environment uses them.
    """

    def __init__(self) -> None:
        self._bits = np.random.MT19937(0)
        self._states: dict[CopiedGenerator, _OwnState] = {}

    @property
    def swapped(self) -> list[CopiedGenerator]:
        """The copied generators of which the env has a state of its own."""
        return [generator for generator, state in self._states.items() if state.is_swapped]

    def enter(self) -> None:
        set_bit_generator(self._bits)
        for state in self._states.values():
            if state.is_swapped:
                state.enter()

    def leave(self) -> None:
        for state in self._states.values():
            if state.is_swapped:
                state.leave()

    @contextmanager
    def reset(self, seed: int) -> Iterator[None]:
        """Seeds all for a `reset` of the environment. Those that are not swapped are restored afterwards."""
        set_bit_generator(self._bits)
        np.random.seed(seed)
        with ExitStack() as stack:
            for generator in copied_generators():
                if generator not in self._states:
                    self._states[generator] = _OwnState(generator)
                stack.enter_context(self._states[generator].reset(seed))
            yield

    def end_episode(self) -> None:
        for state in self._states.values():
            state.end_episode()


_SPARE = np.random.MT19937(0)  # for draws of an environment before its first reset


class PreservedGenerators:
    """A context that restores the process's generators afterwards.

    Args:
        copied: which of the copied ones it restores.
    """

    def __init__(self, copied: Collection[CopiedGenerator]) -> None:
        self._copied = copied

    def __enter__(self) -> None:
        self._bits = get_bit_generator()
        set_bit_generator(_SPARE)
        self._states = [(generator, generator.get_state()) for generator in self._copied]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_bit_generator(self._bits)
        for generator, state in self._states:
            generator.set_state(state)

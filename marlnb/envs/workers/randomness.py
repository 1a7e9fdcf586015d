"""Separate global generators of numpy and Python for each env, for environments that draw from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import numpy as np
from numpy.random import get_bit_generator, set_bit_generator  # type: ignore[attr-defined]


class EnvGenerators:
    """One env's replacement for `np.random` and `random`; active from `enter` until another env's is.

    Swapping numpy's generator costs nothing. Swapping Python's is slow, so it ends when the environment has played a
    whole episode without drawing from it, and begins again when it draws from it in a `reset`.

    Attributes:
        swaps_python: whether Python's generator is swapped.
    """

    def __init__(self) -> None:
        self._bits = np.random.MT19937(0)
        self.swaps_python = True
        self._has_drawn = False  # from Python's generator
        self._python: tuple[object, ...] = ()

    def enter(self) -> None:
        set_bit_generator(self._bits)
        if self.swaps_python:
            random.setstate(self._python)

    def leave(self) -> None:
        if self.swaps_python:
            self._keep_python()

    @contextmanager
    def reset(self, seed: int) -> Iterator[None]:
        """Seeds both for a `reset` of the environment. Python's is restored afterwards if it was not swapped."""
        set_bit_generator(self._bits)
        np.random.seed(seed)
        before = None if self.swaps_python else random.getstate()
        random.seed(seed)
        self._python = random.getstate()
        try:
            yield
            self._keep_python()
        finally:
            if before is not None:
                random.setstate(before)

    def end_episode(self) -> None:
        self.swaps_python = self._has_drawn

    def _keep_python(self) -> None:
        state = random.getstate()
        if state != self._python:
            self.swaps_python = self._has_drawn = True
        self._python = state


_SPARE = np.random.MT19937(0)  # for draws of an environment before its first reset


class PreservedGenerators:
    """A context that restores the process's generators afterwards.

    Args:
        python: also restore Python's generator, which is slower.
    """

    def __init__(self, python: bool) -> None:
        self._python = python

    def __enter__(self) -> None:
        self._bits = get_bit_generator()
        set_bit_generator(_SPARE)
        self._state = random.getstate() if self._python else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_bit_generator(self._bits)
        if self._state is not None:
            random.setstate(self._state)

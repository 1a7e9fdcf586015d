"""Separate global generators of numpy and Python for each env, for environments that draw from them."""

from __future__ import annotations

import random
from types import TracebackType

import numpy as np
from numpy.random import get_bit_generator, set_bit_generator  # type: ignore[attr-defined]


class GlobalGenerators:
    """One env's replacement for `np.random` and `random`; active from `enter` until another env's is.

    Swapping numpy's generator costs nothing. Swapping Python's is slow, so it is done only for environments that were
    seen to draw from it in a `reset`.
    """

    def __init__(self) -> None:
        self._bits = np.random.MT19937(0)
        self.draws_python = False
        self._python: tuple[object, ...] = ()

    def enter(self) -> None:
        set_bit_generator(self._bits)
        if self.draws_python:
            random.setstate(self._python)

    def leave(self) -> None:
        if self.draws_python:
            self._python = random.getstate()

    def seed(self, seed: int) -> None:
        """Seeds both; must be followed by a `reset` of the environment and by `after_reset`."""
        set_bit_generator(self._bits)
        np.random.seed(seed)
        random.seed(seed)
        self._python = random.getstate()

    def after_reset(self) -> None:
        state = random.getstate()
        if state != self._python:
            self.draws_python, self._python = True, state


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

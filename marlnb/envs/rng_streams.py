"""Separate random numbers for environments that draw from the process's global generators.

torch, numpy and Python each have one generator that the whole process shares. `with streams:` replaces them by those of
one environment, so its episodes depend only on its seeds, and other code's random numbers do not change.
"""

from __future__ import annotations

import random
from types import TracebackType

import numpy as np
import torch
from numpy.random import get_bit_generator, set_bit_generator  # type: ignore[attr-defined]


class RngStreams:
    """One environment's replacement for the generators of torch (on the CPU and on `device`), numpy and Python."""

    def __init__(self, device: torch.device) -> None:
        self._torch = [torch.default_generator]
        if device.type == "cuda":
            torch.cuda.init()
            self._torch.append(torch.cuda.default_generators[device.index or 0])
        self._numpy_bits = np.random.MT19937(0)
        self._states = [generator.get_state() for generator in self._torch]
        self._python_state = random.getstate()
        self.restart(0)

    def restart(self, seed: int) -> None:
        """Seeds all generators; call it outside the context."""
        with self:
            self.seed(seed)

    def seed(self, seed: int) -> None:
        """Seeds all generators; call it within the context."""
        for generator in self._torch:
            generator.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)

    def __enter__(self) -> RngStreams:
        self._outside = [generator.get_state() for generator in self._torch], get_bit_generator(), random.getstate()
        for generator, state in zip(self._torch, self._states):
            generator.set_state(state)
        set_bit_generator(self._numpy_bits)
        random.setstate(self._python_state)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._states = [generator.get_state() for generator in self._torch]
        self._python_state = random.getstate()
        states, bits, python = self._outside
        for generator, state in zip(self._torch, states):
            generator.set_state(state)
        set_bit_generator(bits)
        random.setstate(python)

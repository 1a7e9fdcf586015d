"""Random numbers by counter: a pure function of (seed, purpose, name, number), the same in every process."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.random.bit_generator import ISeedSequence


def generator(seed: int, purpose: str, name: str, number: int) -> np.random.Generator:
    """Random numbers of one draw: Philox with a key of (seed, purpose, name), and a counter that starts at `number`.

    The number is in the counter's highest word, so the streams of two draws never overlap.
    """
    digest = hashlib.sha256(f"{seed}/{purpose}/{name}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)
    counter = np.array([0, 0, 0, number], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(_Key(key), counter=counter))  # type: ignore[arg-type]


class _Key(ISeedSequence):
    """Gives Philox its key. `Philox(key=...)` has the same stream, but slowly asks the system for entropy."""

    def __init__(self, key: np.ndarray) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        return self._key

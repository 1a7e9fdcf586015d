"""Seeds and random-number streams of a training run, separate from those of the notebook around it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from marlnb.specs import derive_seed

GENERATORS_LOCK = threading.RLock()
"""Held while a thread replaces the states of torch's, numpy's and Python's global generators."""


class RandomStreams:
    """A training's own torch, numpy and Python random states, installed while it works and removed afterwards."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        with self._preserving_outer():
            torch.manual_seed(derive_seed(seed, "torch"))
            np.random.seed(derive_seed(seed, "numpy"))
            random.seed(derive_seed(seed, "python"))
            self._state = self._current()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside, the global generators have this training's states; afterwards their previous ones."""
        with self._preserving_outer():
            self._install(self._state)
            try:
                yield
            finally:
                self._state = self._current()

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)

    @contextmanager
    def _preserving_outer(self) -> Iterator[None]:
        with GENERATORS_LOCK:
            outer = self._current()
            try:
                yield
            finally:
                self._install(outer)

    def _current(self) -> dict[str, Any]:
        kind, keys, position, has_gauss, gauss = np.random.get_state()
        state = {
            "torch": torch.get_rng_state(),
            "numpy": (kind, torch.from_numpy(np.array(keys).astype(np.int64)), position, has_gauss, gauss),
            "python": random.getstate(),
        }
        if self._device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self._device)
        return state

    def _install(self, state: Mapping[str, Any]) -> None:
        kind, keys, *rest = state["numpy"]
        torch.set_rng_state(state["torch"])
        np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
        random.setstate(state["python"])
        if "cuda" in state and self._device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self._device)

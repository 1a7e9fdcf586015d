"""Torch's threads for the time of a training step or of an episode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from marlnb.cores import usable_cores


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Sets torch's threads, 0: one for each usable core, and restores them."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)

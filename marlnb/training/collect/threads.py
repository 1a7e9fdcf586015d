"""The number of torch's threads during a training step or an episode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from marlnb.allocations import usable_cores


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Sets the number of torch's threads (0: one per usable core), and restores it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)

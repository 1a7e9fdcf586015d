"""Training and eval mode of modules, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_mode(modules: Sequence[nn.Module], *, training: bool) -> Iterator[None]:
    """Puts modules into a mode while the block runs, and restores the mode of each of their submodules afterwards."""
    modes = [(submodule, submodule.training) for module in modules for submodule in module.modules()]
    for module in modules:
        module.train(training)
    try:
        yield
    finally:
        for submodule, is_training in modes:
            submodule.training = is_training

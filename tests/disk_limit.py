"""A disk that refuses writes, as one that is full."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def max_file_bytes(n: int) -> Iterator[None]:
    """No file of this process may get longer; what a library holds of failed files is freed before the limit ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, hard))
    try:
        yield
        gc.collect()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

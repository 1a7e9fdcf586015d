"""What the C library does with the memory of freed tensors while a training runs."""

from __future__ import annotations

import ctypes
import os
import sys

KEPT_BYTES = 256 * 2**20
MAX_HEAP_BLOCK_BYTES = 32 * 2**20  # the largest that glibc accepts
# from glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
ENVIRONMENT = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Lets this process keep up to KEPT_BYTES of freed memory for the next tensors.

    glibc returns the memory of large tensors to the system, which clears each page again for the next minibatch: a
    tenth of a training's CPU time. Settings by environment variables take precedence, and other C libraries than glibc
    stay as they are.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in ENVIRONMENT):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAX_HEAP_BLOCK_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)

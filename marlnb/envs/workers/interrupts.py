"""Interrupts that wait: what a block starts or ends is known to the code after it, or nothing has begun."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_after() -> Iterator[None]:
    """Delays an interrupt (Ctrl-C) until the block has ended. Only the main thread is interrupted.

    An interrupt between the start of a process and the assignment of its handle would leave a process without an end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[FrameType | None] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        if heard and callable(handler):
            handler(signal.SIGINT, heard[0])

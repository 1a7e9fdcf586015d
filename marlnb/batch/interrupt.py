"""Signals that a batch system or a person sends to end a program, heeded as an interrupt is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """In the main thread, SIGTERM and SIGUSR1 are interrupts too, so that a batch system's stop is heeded."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

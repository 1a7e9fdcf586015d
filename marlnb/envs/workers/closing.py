"""Ends worker processes even if the code that started them is interrupted. Imports the standard library only."""

from __future__ import annotations

import contextlib
import signal
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Protocol


class _Closes(Protocol):
    def close(self) -> None: ...


_made: ContextVar[weakref.WeakSet[_Closes] | None] = ContextVar("_made", default=None)
"""What was made in the innermost block of `closing_pools`."""


def close_on_error(pool: _Closes) -> None:
    """Lets the innermost block of `closing_pools` close the pool, if there is one and it raises."""
    if (made := _made.get()) is not None:
        made.add(pool)


@contextlib.contextmanager
def closing_pools() -> Iterator[None]:
    """Closes the pools that were made in the block, if it raises.

    An interrupt may come between the last line of a function that returns an environment and the `with` that closes it;
    and a notebook keeps the traceback, with the environment in it.
    """
    made: weakref.WeakSet[_Closes] = weakref.WeakSet()
    token = _made.set(made)
    try:
        yield
    except BaseException:
        with interrupts_after():
            for pool in list(made):
                pool.close()
        raise
    finally:
        _made.reset(token)


@contextlib.contextmanager
def interrupts_after() -> Iterator[None]:
    """Delays an interrupt (Ctrl-C) until the block has ended. Only the main thread is interrupted.

    An interrupt between the start of a process and the assignment of its handle, or while processes are ended, would
    leave some running.
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

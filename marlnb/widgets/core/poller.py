"""Poller: looks again and again in a thread, for as long as somebody holds what it looks for, and shows what it found.

Looking takes a share of the time that a training in the same process lacks: Python runs one thread at a time. So the
dearer a look is, the longer it is until the next.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from marlnb.widgets.core.ui_lock import TURN

F = TypeVar("F")

SHARE = 0.005  # of the time, spent on looking at most; what is sent to a page costs the kernel as much again
SELDOM_S = 4.0  # however dear a look was


class Poller(Generic[F]):
    """Calls two methods of an object every so often, from a thread that ends with the object, or when told to.

    The object is held weakly: a panel that nobody holds any more is not kept alive by its own looking.

    Args:
        look: a bound method that finds out what is new; what takes long belongs here.
        show: a bound method that shows in turn what `look` returned; it returns how long to wait until the next look,
            in seconds at least, or None to end.
        on_error: called in turn with what these raised; the polling has ended then.
    """

    def __init__(
        self, look: Callable[[], F], show: Callable[[F], float | None], on_error: Callable[[Exception], None]
    ) -> None:
        self._look, self._show = weakref.WeakMethod(look), weakref.WeakMethod(show)
        self._on_error = weakref.WeakMethod(on_error)
        self._looking = threading.Lock()
        self._found: deque[F] = deque()
        self._woken = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._loop, daemon=True, name=f"looking for {look.__qualname__}")
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def now(self) -> None:
        """Looks at once."""
        self._woken.set()

    def end(self) -> None:
        self._ended = True
        self._woken.set()

    def catch_up(self) -> float | None:
        """Looks and shows within the caller's thread; returns what `show` returned last."""
        look: Any = self._look()
        with self._looking:
            if look is not None:
                self._found.append(look())
        return self._show_all()

    def _show_all(self) -> float | None:
        """What was found, in the order in which it was, whichever thread found it."""
        wait_s: float | None = 0.0
        show: Any = self._show()
        with TURN:
            while self._found:
                found = self._found.popleft()
                wait_s = None if show is None else show(found)
        return wait_s

    def _loop(self) -> None:
        is_first = True
        while not self._ended:
            self._woken.clear()
            began = time.thread_time()
            wait_s = self._call()
            if wait_s is None:
                return
            cost_s = 0.0 if is_first else time.thread_time() - began  # the first one reads, and imports, all there is
            self._woken.wait(max(wait_s, min(cost_s / SHARE, SELDOM_S)))
            is_first = False

    def _call(self) -> float | None:
        try:
            return None if self._look() is None else self.catch_up()
        except Exception as error:
            tell: Any = self._on_error()
            if tell is not None:
                with TURN:
                    tell(error)
            return None

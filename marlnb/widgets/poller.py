"""Poller: looks again and again in a thread, for as long as somebody holds what it looks for."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class Poller:
    """Calls a method of an object every so often, from a thread that ends with the object, or when told to.

    Args:
        method: a bound method; it returns how long to wait until the next call, in seconds, or None to end. Its
            object is held weakly: a panel that nobody holds any more is not kept alive by its own looking.
        on_error: called with what the method raised; the polling has ended then.
    """

    def __init__(self, method: Callable[[], float | None], on_error: Callable[[Exception], None]) -> None:
        self._method = weakref.WeakMethod(method)
        self._on_error = weakref.WeakMethod(on_error)
        self._woken = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._loop, daemon=True, name=f"looking for {method.__qualname__}")
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

    def _loop(self) -> None:
        while not self._ended:
            self._woken.clear()
            wait_s = self._call()
            if wait_s is None:
                return
            self._woken.wait(wait_s)

    def _call(self) -> float | None:
        method = self._method()
        if method is None:
            return None
        try:
            return method()
        except Exception as error:
            tell: Any = self._on_error()
            if tell is not None:
                tell(error)
            return None

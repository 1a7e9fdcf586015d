"""Poller: repeats a query in a thread and shows what it returns, for as long as its object exists.

Python runs one thread at a time, so polling slows down a training run in the same process. The longer a query takes,
the longer the poller therefore waits until the next one.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from marlnb.widgets.core.ui_lock import UI_LOCK

T = TypeVar("T")

MAX_TIME_SHARE = 0.005  # of the time spent on queries; what is sent to a page costs the kernel as much again
MAX_WAIT_S = 4.0  # however slow a query is


class Poller(Generic[T]):
    """Calls two methods of an object repeatedly from a thread, until the object is gone or `end` is called.

    The object is held weakly: polling does not keep alive a panel that nothing else refers to.

    Args:
        query: a bound method that reads what is new; slow work belongs here.
        show: a bound method, called under UI_LOCK with what `query` returned. It returns the least number of seconds
            until the next query, or None to end.
        on_error: called under UI_LOCK with what these raised; the next query follows MAX_WAIT_S later.
    """

    def __init__(
        self, query: Callable[[], T], show: Callable[[T], float | None], on_error: Callable[[Exception], None]
    ) -> None:
        self._query, self._show = weakref.WeakMethod(query), weakref.WeakMethod(show)
        self._on_error = weakref.WeakMethod(on_error)
        self._is_querying = threading.Lock()
        self._results: deque[T] = deque()
        self._is_due = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._loop, daemon=True, name=f"polling {query.__qualname__}")
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def now(self) -> None:
        """Does the next query without waiting."""
        self._is_due.set()

    def end(self) -> None:
        self._has_ended = True
        self._is_due.set()

    def catch_up(self) -> float | None:
        """Queries and shows in the caller's thread; returns what `show` returned last.

        Results are shown in the order of their queries, whichever thread made them.
        """
        query: Any = self._query()
        with self._is_querying:
            if query is not None:
                self._results.append(query())
        wait_s: float | None = 0.0
        show: Any = self._show()
        with UI_LOCK:
            while self._results:
                result = self._results.popleft()
                wait_s = None if show is None else show(result)
        return wait_s

    def _loop(self) -> None:
        is_first = True
        while not self._has_ended:
            self._is_due.clear()
            started = time.thread_time()
            try:
                wait_s = None if self._query() is None else self.catch_up()
            except Exception as error:
                wait_s = self._report(error)
            if wait_s is None:
                return
            # the first query reads the whole file and imports modules: its cost says nothing about the next ones
            cost_s = 0.0 if is_first else time.thread_time() - started
            self._is_due.wait(max(wait_s, min(cost_s / MAX_TIME_SHARE, MAX_WAIT_S)))
            is_first = False

    def _report(self, error: Exception) -> float | None:
        """Shows an error. Returns the time until the next query, or None if the object is gone."""
        on_error: Any = self._on_error()
        if on_error is None:
            return None
        with UI_LOCK:
            on_error(error)
        return MAX_WAIT_S

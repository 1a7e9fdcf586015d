"""Newest: runs the newest request in a thread, and answers in turn; the answers of older ones are dropped."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any

from marlnb.widgets.core.ui_lock import TURN

LAST_S = 10.0
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_ending = threading.Event()


class Newest:
    """Answers requests that take time, so that the page stays alive; only the newest one's answer is given.

    Args:
        wait_s: how long a request waits for a newer one, so that typing does not start one for each letter.
    """

    def __init__(self, *, wait_s: float = 0.3) -> None:
        self._wait_s = wait_s
        self._number = 0
        self._working = threading.Lock()

    def ask(
        self, work: Callable[[], Any], answer: Callable[[Any], None], fail: Callable[[Exception], None]
    ) -> threading.Thread:
        """Calls `work` in a thread, then in turn `answer` with its result or `fail` with what it raised."""
        with TURN:
            self._number += 1
            number = self._number
        thread = threading.Thread(target=self._run, args=(number, work, answer, fail), daemon=True)
        _threads.add(thread)
        thread.start()
        return thread

    def forget(self) -> None:
        """What is being worked on will not be answered."""
        with TURN:
            self._number += 1

    def _run(
        self, number: int, work: Callable[[], Any], answer: Callable[[Any], None], fail: Callable[[Exception], None]
    ) -> None:
        if self._wait_s:
            _ending.wait(self._wait_s)
        with self._working:  # one at a time: an environment may not like to be built twice at once
            if number != self._number or _ending.is_set():
                return
            told: Callable[[Any], None] = answer
            found: Any = None
            try:
                found = work()
            except Exception as error:  # an environment may raise anything
                told, found = fail, error
        with TURN:
            if number == self._number:
                told(found)


@atexit.register
def _end() -> None:
    """Python ends while no request is worked on: a thread that is cut off within torch aborts the whole process."""
    _ending.set()
    settle()


def settle(each_s: float = LAST_S) -> None:
    """Waits until no request is worked on any more, `each_s` seconds for each at most; not for who has the turn."""
    for thread in list(_threads):
        thread.join(each_s)

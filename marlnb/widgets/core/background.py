"""Work in threads, so that the page stays responsive: BackgroundTask can be stopped, LatestOnly drops old requests."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any

from marlnb.widgets.core.ui_lock import UI_LOCK

EXIT_WAIT_S = 10.0
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_is_exiting = threading.Event()


class TaskStopped(Exception):
    """The task was stopped."""


class BackgroundTask:
    """One long task in a thread, which a button can stop.

    Args:
        run: the task; called with this object, whose `check` it calls often.
        done: called under UI_LOCK with what `run` returned.
        failed: called under UI_LOCK with what `run` raised; TaskStopped if it was stopped.
    """

    def __init__(
        self, run: Callable[[BackgroundTask], Any], *, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self._is_stopping = threading.Event()
        self._task, self._done, self._failed = run, done, failed
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ends the task at its next `check`."""
        self._is_stopping.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until the task has ended and `done` or `failed` has run. Do not hold UI_LOCK."""
        self._thread.join(timeout_s)

    def check(self) -> None:
        """Raises TaskStopped if the task was stopped."""
        if self._is_stopping.is_set():
            raise TaskStopped

    def _run(self) -> None:
        try:
            result = self._task(self)
        except Exception as error:  # an environment may raise anything
            with UI_LOCK:
                self._failed(error)
        else:
            with UI_LOCK:
                self._done(result)


class LatestOnly:
    """Runs requests in threads and delivers the result of the latest one; results of older requests are dropped.

    Args:
        wait_s: how long a request waits for a newer one before it starts, so that typing does not start a request for
            each letter.
    """

    def __init__(self, *, wait_s: float = 0.3) -> None:
        self._wait_s = wait_s
        self._latest = 0
        self._is_running = threading.Lock()

    def request(
        self, run: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> threading.Thread:
        """Calls `run` in a thread; then, under UI_LOCK, `done` with its result, or `failed` with what either raised."""
        with UI_LOCK:
            self._latest += 1
            number = self._latest

        def answer() -> None:
            if self._wait_s:
                _is_exiting.wait(self._wait_s)
            with self._is_running:  # one at a time: some environments cannot be built twice at the same time
                if number != self._latest or _is_exiting.is_set():
                    return
                try:
                    deliver, result = done, run()
                except Exception as error:  # an environment may raise anything
                    deliver, result = failed, error
            with UI_LOCK:
                if number != self._latest:
                    return
                try:
                    deliver(result)
                except Exception as error:  # as when the result cannot be drawn
                    failed(error)

        thread = threading.Thread(target=answer, daemon=True)
        _threads.add(thread)
        thread.start()
        return thread

    def cancel(self) -> None:
        """The result of the request that is running will not be delivered."""
        with UI_LOCK:
            self._latest += 1


@atexit.register
def _exit() -> None:
    """Python exits when no request runs: a thread that is cut off inside torch aborts the whole process."""
    _is_exiting.set()
    wait_for_requests()


def wait_for_requests(timeout_s: float = EXIT_WAIT_S) -> None:
    """Waits until no request of any `LatestOnly` runs, at most `timeout_s` seconds for each. Do not hold UI_LOCK."""
    for thread in list(_threads):
        thread.join(timeout_s)

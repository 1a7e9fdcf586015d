"""Work: one long piece of work in a thread, which a button can stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from marlnb.widgets.core.ui_lock import TURN


class WorkStopped(Exception):
    """The work was asked to stop."""


class Work:
    """Does something in a thread.

    Args:
        do: called with this; it calls `check` again and again.
        done: called in turn with what `do` returned.
        failed: called in turn with what it raised, WorkStopped where it was stopped.
    """

    def __init__(
        self, do: Callable[[Work], Any], *, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self._stopping = threading.Event()
        self._do, self._done, self._failed = do, done, failed
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ends it when it next looks."""
        self._stopping.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for its end, `done` or `failed` included; not for who has the turn."""
        self._thread.join(timeout_s)

    def check(self) -> None:
        """Raises WorkStopped when it was asked to stop."""
        if self._stopping.is_set():
            raise WorkStopped

    def _run(self) -> None:
        try:
            found = self._do(self)
        except Exception as error:  # an environment may raise anything
            with TURN:
                self._failed(error)
        else:
            with TURN:
                self._done(found)

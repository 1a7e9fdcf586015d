"""The folder and the signal handlers of environments that are stepped in this process, apart from the program's own."""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType

NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))


class IsolatedProcess:
    """A context for every call of an environment in this process; use one for all calls.

    An environment that changes the working directory finds itself there in its next call, and the program stays where
    it is. The program's handlers of the signals that end a training run are put back.
    """

    def __init__(self) -> None:
        self._env_folder: str | None = None

    def __enter__(self) -> None:
        self._folder = _folder()
        self._handlers = [signal.getsignal(number) for number in SIGNALS]
        if self._env_folder is not None:
            os.chdir(self._env_folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder = _folder()
        if folder != self._folder and self._folder is not None:
            self._env_folder = folder
            os.chdir(self._folder)
        if threading.current_thread() is threading.main_thread():
            for number, handler in zip(SIGNALS, self._handlers):
                if handler is not None and signal.getsignal(number) is not handler:
                    signal.signal(number, handler)


def _folder() -> str | None:
    """The working directory; None if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None

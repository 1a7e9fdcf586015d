"""Requests to a job that is being executed: signals, and the file STOP.

While a training goes on it is asked to save and stop, and the notebook ends in the cell that trains. At any other time
the kernel is ended at once: what it did is done again by the next attempt. A second signal ends at once, always.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from marlnb.batch.job.progress import Training, begun_run, find_training
from marlnb.errors import RunError
from marlnb.training.runs.files import STATUS, STOP, read_json, write_atomically

OUT_OF_TIME = "the job's time is nearly over"  # as the training itself saw
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
LOOKS = 2  # in a row at which no training may be there before a request is taken to mean the whole kernel


class Interruption(KeyboardInterrupt):
    """Ends the execution here and now. A KeyboardInterrupt, since an event loop lets nothing else through."""


class Requests:
    """Heeds them within a `with`, in the main thread; elsewhere signals are not this program's to handle.

    Attributes:
        signal: the name of the first signal received.
        stopped: whether somebody asked with the file STOP.
        armed: whether a request that finds no training ends the kernel; not while files are written at the end.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.signal = ""
        self.stopped = False
        self.armed = True
        self._folder, self._say = folder, say
        self._asked: Training | None = None
        self._idle_looks = 0
        self._main = threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Requests:
        self._withdraw()  # what was asked of an attempt before this one
        if self._main:
            numbers = [getattr(signal, name) for name in SIGNALS]
            self._before = {number: signal.signal(number, self._heed) for number in numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        self.armed = False
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._withdraw()

    @property
    def pending(self) -> bool:
        """Whether the execution is to end, by a signal or the file."""
        return bool(self.signal) or self.stopped

    @property
    def reason(self) -> str:
        return "the file STOP" if self.stopped else self.signal

    def look(self) -> None:
        """To be called about once a second, in another thread: passes a request on, and sees that it is heeded."""
        training = find_training(self._folder)
        stop = self._folder / STOP
        if self._asked is None and stop.exists():
            self.stopped = True
            if training is not None and training.run != self._folder:
                self._ask(training, "")
                stop.unlink(missing_ok=True)
        self._idle_looks = self._idle_looks + 1 if self.pending and training is None else 0
        if self._idle_looks >= LOOKS and self.armed and self._main:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def settle(self) -> None:
        """After a training has stopped: whether it did so for a signal, or because somebody asked."""
        try:
            told = read_json(begun_run(self._folder) / STATUS).get("reason", "")
        except RunError:
            told = ""
        if told not in SIGNALS:
            self.stopped = True
        elif not self.stopped:
            self.signal = self.signal or told

    def _heed(self, number: int, frame: FrameType | None) -> None:
        first = not self.pending
        if self._asked is None and (self._folder / STOP).exists():  # asked so a moment before
            self.stopped = True
        if not self.signal:
            self.signal = signal.Signals(number).name
        if not self.armed and first:
            self._say(f"{signal.Signals(number).name}: the notebook has ended, its files are being written")
            return
        training = find_training(self._folder) if first else None
        if training is None:
            raise Interruption(self.reason)
        self._ask(training, self.signal)
        self._say(f"{self.signal}: asked the training to save and stop; once more to end at once")

    def _ask(self, training: Training, reason: str) -> None:
        self._asked = training
        stop = training.run / STOP
        if stop.exists():  # somebody was there before
            self.stopped = True
        else:
            write_atomically(stop, reason, sync=False)

    def _withdraw(self) -> None:
        for run in {self._folder, begun_run(self._folder)}:
            (run / STOP).unlink(missing_ok=True)

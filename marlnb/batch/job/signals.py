"""Requests to stop a job while it executes: signals, and the file STOP.

During a training run the request asks it to save and stop, and the notebook ends in the cell that trains. At any other
time the kernel is ended at once, and the next attempt repeats what it did. A second signal always ends it at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from marlnb.batch.job.training_progress import ActiveTraining, active_training, run_of_job, runs_to_stop
from marlnb.errors import RunError
from marlnb.training.runs.files import STATUS, STOP, read_json, write_atomically

OUT_OF_TIME = "the job's time is nearly over"  # the reason that a training run gives when it stops before a time limit
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
N_IDLE_POLLS = 2  # polls without a training run after which a request ends the whole kernel


class Interruption(KeyboardInterrupt):
    """Ends the execution at once. A KeyboardInterrupt, since an event loop lets no other exception through."""


class StopRequests:
    """Handles requests to stop within a `with`, in the main thread; in other threads only the file STOP works.

    Attributes:
        signal: name of the first signal received; empty without one.
        stopped: whether the file STOP asked to stop.
        armed: whether a request without a training run ends the kernel; False while files are written at the end.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.signal = ""
        self.stopped = False
        self.armed = True
        self._folder, self._say = folder, say
        self._asked: ActiveTraining | None = None
        self._n_idle_polls = 0
        self._in_main_thread = threading.current_thread() is threading.main_thread()
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequests:
        self._delete_stop_files()  # requests to an earlier attempt
        if self._in_main_thread:
            numbers = [getattr(signal, name) for name in SIGNALS]
            self._previous_handlers = {number: signal.signal(number, self._handle_signal) for number in numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        self.armed = False
        _restore_handlers(self._previous_handlers)
        self._delete_stop_files()

    @property
    def pending(self) -> bool:
        """Whether a signal or the file STOP asked to stop."""
        return bool(self.signal) or self.stopped

    @property
    def reason(self) -> str:
        return "the file STOP" if self.stopped else self.signal

    def poll(self) -> None:
        """Passes a request on to the training, or ends the kernel. Called about once a second, in another thread."""
        training = active_training(self._folder)
        stop = self._folder / STOP
        if self._asked is None and stop.exists():
            self.stopped = True
            if training is not None and training.run != self._folder:
                self._ask(training, "")
                stop.unlink(missing_ok=True)
        self._n_idle_polls = self._n_idle_polls + 1 if self.pending and training is None else 0
        if self._n_idle_polls >= N_IDLE_POLLS and self.armed and self._in_main_thread:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def read_stop_reason(self) -> None:
        """After a training run has stopped: finds out whether a signal or a person asked it to."""
        try:
            reason = read_json(run_of_job(self._folder) / STATUS).get("reason", "")
        except RunError:
            reason = ""
        if reason not in SIGNALS:
            self.stopped = True
        elif not self.stopped:
            self.signal = self.signal or reason

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        is_first = not self.pending
        if self._asked is None and (self._folder / STOP).exists():  # created just before the signal
            self.stopped = True
        self.signal = self.signal or signal.Signals(number).name
        if not self.armed and is_first:
            self._say(f"{signal.Signals(number).name}: the notebook has ended, its files are being written")
            return
        training = active_training(self._folder) if is_first else None
        if training is None:
            raise Interruption(self.reason)
        self._ask(training, self.signal)
        self._say(f"{self.signal}: asked the training to save and stop; send it again to end at once")

    def _ask(self, training: ActiveTraining, reason: str) -> None:
        """Raises DiskError: the request could not be written; a request by a file is made again at the next poll."""
        self._asked = training  # before the file exists, which else counts as the request of a person
        stop = training.run / STOP
        if stop.exists():  # a person has asked already
            self.stopped = True
            return
        try:
            write_atomically(stop, reason, sync=False)
        except OSError:
            self._asked = None
            raise

    def _delete_stop_files(self) -> None:
        for run in runs_to_stop(self._folder):
            (run / STOP).unlink(missing_ok=True)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """In the main thread, SIGTERM and SIGUSR1 raise KeyboardInterrupt, so that a batch system can interrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        _restore_handlers(previous)


def _restore_handlers(handlers: Mapping[Any, Any]) -> None:
    for number, handler in handlers.items():
        # None: the handler was not installed by Python, and cannot be set again
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)

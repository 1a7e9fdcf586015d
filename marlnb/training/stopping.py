"""What stops a training besides its limits: signals, and a file STOP while it waits for simulators."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from marlnb.envs.external.interface import is_served
from marlnb.training.runs.files import STOP, stop_reason
from marlnb.training.trainer import Trainer

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
WAITING_POLL_S = 0.5


@contextmanager
def stopping_on_signals(trainers: Sequence[Trainer]) -> Iterator[None]:
    """In the main thread, a signal asks the trainers to stop; a second interrupt interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    n_interrupts = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal n_interrupts
        n_interrupts += number == signal.SIGINT
        if n_interrupts > 1:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        for trainer in trainers:
            trainer.ask_to_stop(name)
        hint = "; interrupt again to stop at once" if number == signal.SIGINT else ""
        os.write(2, f"\n{name}: stopping after this iteration, which is then saved{hint}\n".encode())

    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def stopping_while_waiting(trainer: Trainer) -> Iterator[None]:
    """A thread looks for a request to stop where an iteration may wait for simulators, however long."""
    if not is_served(trainer.loop.env):
        yield
        return
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.wait(WAITING_POLL_S):
            if (reason := stop_reason(trainer.run.path)) is not None:
                trainer.ask_to_stop(reason or f"the file {STOP}")
                return

    thread = threading.Thread(target=watch, name="looking for a request to stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()

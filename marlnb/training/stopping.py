"""Signals that stop a training, saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from marlnb.training.trainer import Trainer

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


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

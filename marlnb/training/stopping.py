"""What asks training runs to stop, saved: signals, and a file STOP while they wait for simulators.

An interrupt never ends an iteration half-way, unless it is repeated.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from marlnb.training.runs.files import STOP, stop_reason

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP")  # the last one: the terminal was closed
POLL_S = 0.5


@contextmanager
def stopping_on_signals(stops: Sequence[Callable[[str], None]]) -> Iterator[None]:
    """In the main thread, a signal calls each of `stops` with its name; a second interrupt interrupts at once.

    A training run that nohup started continues when its terminal is closed.
    """
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
        for stop in stops:
            stop(name)
        hint = "; interrupt again to stop at once" if number == signal.SIGINT else ""
        _say(f"{name}: stopping after this iteration, which is then saved{hint}")

    present = {name: getattr(signal, name) for name in SIGNALS if hasattr(signal, name)}
    is_ignored = "SIGHUP" in present and signal.getsignal(present["SIGHUP"]) == signal.SIG_IGN
    numbers = [number for name, number in present.items() if name != "SIGHUP" or not is_ignored]
    handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def interrupts_after_iteration(on_interrupt: Callable[[], None]) -> Iterator[None]:
    """In the main thread, a first interrupt is raised when the block has ended; a second one interrupts at once.

    A handler that is set already, as by `stopping_on_signals`, stays in charge.

    Args:
        on_interrupt: called at the first interrupt, so that the block ends soon.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    is_interrupted = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        if is_interrupted:
            raise KeyboardInterrupt
        is_interrupted = True
        on_interrupt()
        _say("SIGINT: interrupting after this iteration; interrupt again to stop at once")

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if is_interrupted:
        raise KeyboardInterrupt


@contextmanager
def stopping_on_file(run: Path, stop: Callable[[str], None]) -> Iterator[None]:
    """A thread calls `stop` with the reason once there is a file STOP in the run's folder.

    For a training run that waits for simulators, however long, and cannot look itself.
    """
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.wait(POLL_S):
            if (reason := stop_reason(run)) is not None:
                stop(reason or f"the file {STOP}")
                return

    thread = threading.Thread(target=watch, name="looking for a request to stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def _say(text: str) -> None:
    """Writes to the terminal, if it is still open. Safe in a signal handler."""
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())

"""A thread that looks for a file STOP: a training that waits for simulators, however long, cannot look itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from marlnb.training.runs.files import STOP, stop_reason

POLL_S = 0.5


@contextmanager
def heeding_stop_file(run: Path, stop: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, calls `stop` with the reason once there is a file STOP in the run's folder."""
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

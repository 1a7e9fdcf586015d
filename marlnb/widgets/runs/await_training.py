"""Await a training run in a cell: progress as text while no page shows it; an interrupt saves and stops it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from marlnb.display.status_line import StatusLine
from marlnb.errors import StoppedError
from marlnb.training.background import AWAIT_POLL_S, Training
from marlnb.training.runs.run import Run
from marlnb.widgets.runs.run_status import describe_status

TEXT_AFTER_S = 5.0  # a panel that no page has drawn by then gets a text line


async def await_training(training: Training, *, is_seen: Callable[[], bool]) -> Run:
    """Waits until a training run has ended, and returns its run.

    Args:
        is_seen: whether a page shows the progress.
    Raises:
        StoppedError: the cell was interrupted. Otherwise whatever ended the training.
    """
    line, started = StatusLine(), time.monotonic()
    try:
        while training.is_alive:
            await asyncio.sleep(AWAIT_POLL_S)
            if not is_seen() and line.due and time.monotonic() - started >= TEXT_AFTER_S:
                line.write(describe_status(training.run.status()))
    except (asyncio.CancelledError, KeyboardInterrupt):
        training.stop()
        while training.is_alive:
            await asyncio.sleep(AWAIT_POLL_S)
        status = describe_status(training.run.status())
        raise StoppedError(
            f"the cell was interrupted; {training.run.shown_path} is {status}. Run the cell again to resume."
        ) from None
    run = training.wait()
    if not is_seen():
        line.write(describe_status(run.status()))
    return run

"""A training that a cell awaits: its progress as text while no page shows it, and an interrupt that stops it, saved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from marlnb.errors import StoppedError
from marlnb.training.background import AWAIT_POLL_S, Training
from marlnb.training.progress import StatusLine
from marlnb.training.runs.run import Run
from marlnb.widgets.runs.run_status import describe_status

UNSEEN_S = 5.0  # a panel that no page has drawn by then is told of as text


async def finished(training: Training, *, is_seen: Callable[[], bool]) -> Run:
    """Waits for the end of a training, and returns its run.

    Args:
        is_seen: whether a page shows how far it is.
    Raises:
        StoppedError: the cell was interrupted. Whatever ended the training.
    """
    line, began = StatusLine(), time.monotonic()
    try:
        while training.is_alive:
            await asyncio.sleep(AWAIT_POLL_S)
            if not is_seen() and line.due and time.monotonic() - began >= UNSEEN_S:
                line.write(describe_status(training.run.status()))
    except (asyncio.CancelledError, KeyboardInterrupt):
        training.stop()
        while training.is_alive:
            await asyncio.sleep(AWAIT_POLL_S)
        told = describe_status(training.run.status())
        raise StoppedError(f"the cell was interrupted; {training.run.path} is {told}. Run the cell again.") from None
    run = training.wait()
    if not is_seen():
        line.write(describe_status(run.status()))
    return run

"""start: a training in a thread, so that the notebook and its buttons answer while it goes on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

from marlnb.experiment import Experiment
from marlnb.training.callbacks import TrainingCallback
from marlnb.training.control import cancel_request, request
from marlnb.training.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.train import drive, open_run

AWAIT_POLL_S = 0.05


class Training:
    """A training under way in a thread of this process.

    `await training` in a cell makes Run All wait for it, while buttons still answer; an interrupt of that cell asks
    the training to stop. Nothing is lost when it is left alone: what it does is in its run's folder.

    Global random numbers (`torch.rand` and the like) drawn in other threads while it runs mix with its own: such a
    training is as good, but no longer repeatable to the bit.

    Attributes:
        run: its folder, from which `status()` and `metrics()` are read.
    """

    def __init__(
        self, run: Run, on_report: Sequence[Callable[[Report], None]], callbacks: Sequence[TrainingCallback]
    ) -> None:
        """Use `start`."""
        self.run = run
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._drive, args=(on_report, callbacks), name=f"training {run.path.name}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"Training({self.run!r})"

    @property
    def is_alive(self) -> bool:
        """Whether it still works, paused or not."""
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """What ended it, where it failed; the traceback is in the run's `events.log` too."""
        return self._error

    def pause(self) -> None:
        """Waits after the iteration under way, until `resume`."""
        if self.is_alive:
            request(self.run.path, "pause")

    def resume(self) -> None:
        cancel_request(self.run.path, "pause")

    def save(self) -> None:
        """A checkpoint after the iteration under way."""
        if self.is_alive:
            request(self.run.path, "save")

    def stop(self) -> None:
        """Ends it after the iteration under way, saved."""
        if self.is_alive:
            request(self.run.path, "stop")

    def wait(self, timeout_s: float | None = None) -> Run:
        """Waits for its end, or for so long, and returns the run.

        Raises:
            Whatever ended the training.
        """
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        return self.run

    def __await__(self) -> Generator[Any, None, Run]:
        return self._finished().__await__()

    async def _finished(self) -> Run:
        try:
            while self.is_alive:
                await asyncio.sleep(AWAIT_POLL_S)
        except (asyncio.CancelledError, KeyboardInterrupt):  # the cell is interrupted
            self.stop()
            raise
        return self.wait()

    def _drive(self, on_report: Sequence[Callable[[Report], None]], callbacks: Sequence[TrainingCallback]) -> None:
        try:
            drive(self.run, False, on_report, callbacks)
        except BaseException as error:  # raised again where somebody waits
            self._error = error


def start(
    experiment: Experiment,
    run: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    on_report: Sequence[Callable[[Report], None]] = (),
    callbacks: Sequence[TrainingCallback] = (),
) -> Training:
    """Begins a training in a thread and returns at once; arguments and errors of opening the run as in `train`."""
    return Training(open_run(experiment, run, resume=resume), on_report, callbacks)

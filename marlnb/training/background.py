"""start: a training run in a thread, so that the notebook and its buttons stay responsive."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

from marlnb.experiment import Experiment
from marlnb.training.control import cancel_request, request
from marlnb.training.reporting.report import Report
from marlnb.training.runs.files import is_run
from marlnb.training.runs.run import Run
from marlnb.training.train import drive, open_run
from marlnb.training.trainer import TrainingCallback

AWAIT_POLL_S = 0.05


class Training:
    """A training run in a thread of this process.

    `await training` in a cell makes Run All wait for it, while buttons still work. An interrupt of that cell asks the
    training to stop. The object can be dropped: everything that the training does is in its run's folder.

    Global random numbers (`torch.rand` and the like) that other threads draw meanwhile mix with its own. Such a
    training is as good, but cannot be repeated to the bit.

    Attributes:
        run: its folder, from which `status()` and `metrics()` are read.
        error: the exception that ended it, if it failed. The run's `events.log` has the traceback.
    """

    def __init__(
        self,
        run: Run,
        on_report: Sequence[Callable[[Report], None]],
        callbacks: Sequence[TrainingCallback],
        *,
        is_new: bool,
    ) -> None:
        """Use `start`."""
        self.run = run
        self.error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._drive, args=(on_report, callbacks, is_new), name=f"training {run.path.name}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"Training({self.run!r})"

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running, paused or not."""
        return self._thread.is_alive()

    def pause(self) -> None:
        """Pauses after the current iteration, until `resume`."""
        if self.is_alive:
            request(self.run.path, "pause")

    def resume(self) -> None:
        """Ends a pause."""
        cancel_request(self.run.path, "pause")

    def save(self) -> None:
        """Saves a checkpoint after the current iteration."""
        if self.is_alive:
            request(self.run.path, "save")

    def stop(self) -> None:
        """Saves and ends it after the current iteration."""
        if self.is_alive:
            request(self.run.path, "stop")

    def wait(self, timeout_s: float | None = None) -> Run:
        """Waits until it ends, or for `timeout_s`, and returns the run.

        Raises:
            The exception that ended the training.
        """
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error
        return self.run

    def __await__(self) -> Generator[Any, None, Run]:
        return self._finished().__await__()

    async def _finished(self) -> Run:
        try:
            while self.is_alive:
                await asyncio.sleep(AWAIT_POLL_S)
        except (asyncio.CancelledError, KeyboardInterrupt):  # the cell was interrupted
            self.stop()
            raise
        return self.wait()

    def _drive(
        self, on_report: Sequence[Callable[[Report], None]], callbacks: Sequence[TrainingCallback], is_new: bool
    ) -> None:
        try:
            drive(self.run, False, on_report, callbacks, is_new=is_new)
        except BaseException as error:  # raised again by `wait`
            self.error = error


def start(
    experiment: Experiment,
    run: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    on_report: Sequence[Callable[[Report], None]] = (),
    callbacks: Sequence[TrainingCallback] = (),
) -> Training:
    """Starts a training run in a thread and returns at once. Arguments, and errors of opening the run, as in `train`.

    If a new training run cannot start, `wait` raises the error, and its folder is deleted again.
    """
    is_new = run is None or not is_run(run)
    return Training(open_run(experiment, run, resume=resume), on_report, callbacks, is_new=is_new)

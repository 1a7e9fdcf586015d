"""train_together: several runs trained in one process, their networks in one batched product.

Each run is an ordinary one: with its seed, metrics, checkpoints and evaluations, and resumable by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from marlnb.errors import MarlnbError
from marlnb.training.control import clear_requests, handle_requests
from marlnb.training.reporting.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.stopping import stopping_on_signals
from marlnb.training.together.joinable import check_joinable
from marlnb.training.together.joined import JoinedTrainings
from marlnb.training.trainer import Trainer


def train_together(
    runs: Sequence[Run], on_report: Sequence[Callable[[Run, Report], None]] = ()
) -> dict[Run, MarlnbError]:
    """Trains runs to their ends, each from its last checkpoint.

    They may be at different iterations. One that cannot be opened, ends or fails leaves, and the others continue.
    Requests to stop, save or pause work for each run; a paused one makes the others wait. Signals and a first interrupt
    stop all, saved.

    Args:
        runs: of experiments that differ in their seed and in numbers of the algorithm such as its learning rate.
        on_report: functions called with each iteration's run and Report.
    Returns:
        by run that failed, why.
    Raises:
        ConfigError: these experiments cannot advance together.
    """
    check_joinable([run.experiment for run in runs])
    joined, failed = JoinedTrainings(), dict[Run, MarlnbError]()
    with ExitStack() as stack:
        trainers: list[Trainer] = []
        for run in runs:
            try:
                trainers.append(stack.enter_context(_opened(run, joined)))
            except MarlnbError as error:  # it is trained by another process, or cannot be resumed
                failed[run] = error
        stack.enter_context(stopping_on_signals([trainer.ask_to_stop for trainer in trainers]))
        while ready := [trainer for trainer in trainers if trainer.state != "failed" and trainer.continues()]:
            for trainer, result in _iterate(ready):
                if isinstance(result, MarlnbError):
                    failed[trainer.run] = result
                    continue
                for callback in on_report:
                    callback(trainer.run, result)
            for trainer in ready:
                handle_requests(trainer)
    return failed


def _opened(run: Run, joined: JoinedTrainings) -> Trainer:
    clear_requests(run.path)
    return Trainer(run.experiment, run, build=joined.build_loop)


def _iterate(ready: Sequence[Trainer]) -> list[tuple[Trainer, Report | MarlnbError]]:
    """One iteration of each; an error ends its training only. An interrupt ends all: their weights may be half new."""
    results: list[tuple[Trainer, Report | MarlnbError]] = []
    try:
        for trainer in ready:
            try:
                results.append((trainer, trainer.iterate()))
            except MarlnbError as error:
                results.append((trainer, error))
    except BaseException as error:
        for trainer in ready[len(results) :]:
            if trainer.state == "running":
                trainer.fail(error)
        raise
    return results

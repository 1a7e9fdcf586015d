"""Requests to a training run, as files in its run folder: save, pause or stop.

A training run checks for them between iterations, and for a stop also while it waits for simulators (`stopping.py`). So
a button in a notebook, a command in a terminal and a script on another node of a cluster all work the same way: every
process that can write to the folder can control the training.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from marlnb.disk import writing
from marlnb.training.runs.files import JOB_VARIABLE, LOCK, PAUSE, SAVE, STOP
from marlnb.training.runs.lock import is_locked

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer

RequestKind = Literal["stop", "pause", "save"]
FILES: dict[RequestKind, str] = {"stop": STOP, "pause": PAUSE, "save": SAVE}
PAUSED_POLL_S = 0.05
SIGN_OF_LIFE_S = 5.0


def request(run: Path, kind: RequestKind, reason: str = "") -> None:
    """Writes a request to a run folder. The run's log will show the `reason`. Raises DiskError: the disk refuses."""
    with writing(run / FILES[kind]):
        (run / FILES[kind]).write_text(reason, encoding="utf-8")


def cancel_request(run: Path, kind: RequestKind) -> None:
    """Removes a request. Removing "pause" resumes the training."""
    (run / FILES[kind]).unlink(missing_ok=True)


def is_requested(run: Path, kind: RequestKind) -> bool:
    """Whether a request has been made and not been handled yet."""
    return (run / FILES[kind]).exists()


def clear_requests(run: Path) -> None:
    """Removes requests that an earlier training run did not live to handle. Call it before a training run starts.

    In a batch job, a request to stop stays: it may have come while the notebook's first cells were executed, and the
    attempt has removed older ones. Requests to a training run that is running in the folder stay too.
    """
    with suppress(OSError):  # a disk that is read-only, as the training will say
        if not is_locked(run / LOCK):
            for kind in FILES:
                if kind != "stop" or JOB_VARIABLE not in os.environ:
                    cancel_request(run, kind)


def handle_requests(trainer: Trainer) -> None:
    """Called between two iterations: saves if requested, and waits while a pause is requested."""
    run = trainer.run.path
    if trainer.state != "running":
        return
    if is_requested(run, "save"):
        cancel_request(run, "save")
        trainer.save()
        trainer.run.log_event(f"saved on request at iteration {trainer.iteration}")
    if is_requested(run, "pause"):
        _pause(trainer)


def _pause(trainer: Trainer) -> None:
    run = trainer.run.path
    trainer.run.log_event(f"paused at iteration {trainer.iteration}")
    reported_at = -float("inf")
    while is_requested(run, "pause") and not is_requested(run, "stop") and not trainer.stopping:
        if is_requested(run, "save"):
            cancel_request(run, "save")
            trainer.save()
        if time.monotonic() - reported_at >= SIGN_OF_LIFE_S:
            reported_at = time.monotonic()
            trainer.report_state("paused")
        time.sleep(PAUSED_POLL_S)
    trainer.run.log_event("resumed")
    trainer.report_state("running")

"""Requests to a training, as files in its run folder: whoever can write there can save, pause or stop it.

A training looks for them between iterations. So a button in a notebook, a command in a terminal and a script on
another node of a cluster all do the same thing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from marlnb.training.runs.run import PAUSE, SAVE, STOP

if TYPE_CHECKING:
    from marlnb.training.trainer import Trainer

RequestKind = Literal["stop", "pause", "save"]
FILES: dict[RequestKind, str] = {"stop": STOP, "pause": PAUSE, "save": SAVE}
PAUSED_POLL_S = 0.05
SIGN_OF_LIFE_S = 5.0


def request(run: Path, kind: RequestKind, reason: str = "") -> None:
    """Leaves a request in a run folder; `reason` is what its log will say."""
    (run / FILES[kind]).write_text(reason, encoding="utf-8")


def cancel_request(run: Path, kind: RequestKind) -> None:
    """Takes a request back; for "pause" this is how a training goes on."""
    (run / FILES[kind]).unlink(missing_ok=True)


def is_requested(run: Path, kind: RequestKind) -> bool:
    """Whether the request lies there, not yet heeded."""
    return (run / FILES[kind]).exists()


def clear_requests(run: Path) -> None:
    """Removes requests to save or pause that an earlier training did not live to heed."""
    cancel_request(run, "save")
    cancel_request(run, "pause")


def handle_requests(trainer: Trainer) -> None:
    """Between two iterations: saves if asked to, and waits while asked to pause."""
    run = trainer.run.path
    if trainer.state != "running":
        return
    if is_requested(run, "save"):
        cancel_request(run, "save")
        trainer.save()
        trainer.run.log_event(f"saved on request at iteration {trainer.iteration}")
    if is_requested(run, "pause"):
        _wait(trainer)


def _wait(trainer: Trainer) -> None:
    run = trainer.run.path
    trainer.run.log_event(f"paused at iteration {trainer.iteration}")
    told_at = -float("inf")
    while is_requested(run, "pause") and not is_requested(run, "stop") and not trainer.stopping:
        if is_requested(run, "save"):
            cancel_request(run, "save")
            trainer.save()
        if time.monotonic() - told_at >= SIGN_OF_LIFE_S:
            told_at = time.monotonic()
            trainer.tell("paused")
        time.sleep(PAUSED_POLL_S)
    trainer.run.log_event("going on")
    trainer.tell("running")

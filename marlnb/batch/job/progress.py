"""Progress: the training that goes on inside a job's cell, read from files, and told in a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.errors import RunError
from marlnb.formatting import format_clock
from marlnb.training.runs.files import LOCK, STATUS, TRAINING, is_run, read_json
from marlnb.training.runs.lock import is_locked

GOING_ON = ("running", "paused")


@dataclass(frozen=True)
class Training:
    """A training that a living process executes.

    Attributes:
        run: its folder.
        text: how far it is.
    """

    run: Path
    text: str


def find_training(folder: Path) -> Training | None:
    """The training that goes on in a job's folder, or elsewhere if the job began it there; None where none does."""
    for run in dict.fromkeys((folder, begun_run(folder))):
        status = _status(run)
        if status.get("state") in GOING_ON and is_locked(run / LOCK):
            return Training(run, describe(status))
    return None


def describe_progress(folder: Path) -> str:
    """`training 120,000 of 3,000,000 frames, 40,000/s, 1:12 left`; nothing while no training goes on."""
    training = find_training(folder)
    return "" if training is None else training.text


def describe(status: Mapping[str, Any]) -> str:
    """A run's status in words."""
    word = "training" if status.get("state") == "running" else "training is paused at"
    text = f"{word} {status.get('frames', 0):,} of {status.get('frames_total', 0):,} frames"
    rate, left = status.get("frames_per_second"), status.get("eta_s")
    text += f", {rate:,.0f}/s" if rate else ""
    return text + (f", {format_clock(left)} left" if left else "")


def begun_run(folder: Path) -> Path:
    """The run that a job's kernel began to train last: the job's own folder where it never said."""
    try:
        return Path(read_json(folder / TRAINING)["run"])
    except (RunError, KeyError, TypeError):
        return folder


def _status(run: Path) -> dict[str, Any]:
    if not is_run(run) or not (run / STATUS).exists():
        return {}
    try:
        return read_json(run / STATUS)
    except RunError:
        return {}

"""The training that runs inside a job's cell, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marlnb.display.formatting import format_clock
from marlnb.errors import RunError
from marlnb.training.runs.files import LOCK, STATUS, TRAINING, is_run, read_json
from marlnb.training.runs.lock import is_locked
from marlnb.training.runs.states import RUNNING_STATES


@dataclass(frozen=True)
class ActiveTraining:
    """A training run that a living process executes.

    Attributes:
        run: its folder.
        description: its progress, as text.
    """

    run: Path
    description: str


def active_training(folder: Path) -> ActiveTraining | None:
    """The training that runs in a job's folder, or in the folder that the job chose; None without one."""
    for run in runs_to_stop(folder):
        status: Mapping[str, Any] = {}
        if is_run(run) and (run / STATUS).exists():
            try:
                status = read_json(run / STATUS)
            except RunError:
                continue
        if status.get("state") in RUNNING_STATES and is_locked(run / LOCK):
            return ActiveTraining(run, describe(status))
    return None


def describe_training(folder: Path) -> str:
    """`training 120,000 of 3,000,000 frames, 40,000/s, 1:12 left`; empty while no training runs."""
    training = active_training(folder)
    return "" if training is None else training.description


def describe(status: Mapping[str, Any]) -> str:
    """A run's status in words."""
    words = "training" if status.get("state") == "running" else "training is paused at"
    text = f"{words} {status.get('frames', 0):,} of {status.get('frames_total', 0):,} frames"
    rate, remaining_s = status.get("frames_per_second"), status.get("eta_s")
    text += f", {rate:,.0f}/s" if rate else ""
    return text + (f", {format_clock(remaining_s)} left" if remaining_s else "")


def run_of_job(folder: Path) -> Path:
    """The run that a job's kernel trained last; the job's own folder if it has not said so."""
    run = _training_of(folder).get("run")
    return folder / run if isinstance(run, str) else folder


def runs_to_stop(folder: Path) -> set[Path]:
    """The runs that a request to this job concerns: in its own folder, and the one that its kernel trained last.

    In a copy of a job, a run elsewhere is that of the original, which may be training.
    """
    run = run_of_job(folder)
    is_own = run.is_relative_to(folder) or _training_of(folder).get("job") == str(folder)
    return {folder, run} if is_own else {folder}


def _training_of(folder: Path) -> Mapping[str, Any]:
    try:
        return read_json(folder / TRAINING)
    except RunError:
        return {}

"""train and resume: a Trainer driven to its end, with progress shown and signals heeded."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from marlnb.errors import AllocationEndsError, ConfigError, RunError, StoppedError
from marlnb.experiment import Experiment
from marlnb.training.callbacks import TrainingCallback
from marlnb.training.control import clear_requests, handle_requests
from marlnb.training.learners import check_device
from marlnb.training.loggers import check_loggers
from marlnb.training.progress import Progress, how_it_ended
from marlnb.training.report import Report
from marlnb.training.runs.files import (
    EXPERIMENT,
    JOB_VARIABLE,
    LOCK,
    METRICS,
    TRAINING,
    is_run,
    read_lines,
    write_atomically,
)
from marlnb.training.runs.lock import RunLock, is_locked
from marlnb.training.runs.run import Run
from marlnb.training.trainer import Trainer

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
RunLike = Run | str | os.PathLike[str]


def train(
    experiment: Experiment,
    run: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    progress: bool = True,
    on_report: Sequence[Callable[[Report], None]] = (),
    callbacks: Sequence[TrainingCallback] = (),
) -> Run:
    """Trains until the experiment's frames, its target return or a request to stop; returns the run either way.

    A file STOP in the run folder, SIGTERM, SIGUSR1 or a first interrupt end the training after the iteration, saved;
    a second interrupt ends it at once, with the last checkpoint whole. It ends, saved, before its SLURM job does too.

    Args:
        run: the folder to make; none: `runs/<env>-<algorithm>-<seed>-<n>`.
        resume: when the folder holds an interrupted run of this experiment, go on with it; when that is complete,
            return it; when there is none, begin.
        on_report: called with each iteration's report.
        callbacks: who looks on between iterations, as `marlnb.RecordWhileTraining`; what is learnt stays the same.
    Raises:
        RunError: the folder holds something already, a run of another experiment, or one being trained.
        ConfigError, EnvError: the experiment cannot be run; a folder that was made for it is gone again.
        CheckpointError: a checkpoint cannot be written or read; the earlier ones are whole.
        DivergedError: losses or weights are no longer finite.
        StoppedError: asked to stop, within a batch job: the notebook ends here, and is executed again later.
        AllocationEndsError: the same, because the job's time is nearly over.
    """
    is_new = run is None or not is_run(run)
    return drive(open_run(experiment, run, resume=resume), progress, on_report, callbacks, is_new=is_new)


def resume(
    run: RunLike,
    *,
    frames: int | None = None,
    progress: bool = True,
    on_report: Sequence[Callable[[Report], None]] = (),
    callbacks: Sequence[TrainingCallback] = (),
) -> Run:
    """Goes on with a run from its last checkpoint; returns it at once when it is complete.

    Args:
        frames: a new total length, longer than what is done, to train a complete run further.
        callbacks: as in `train`.
    Raises:
        As `train`; ConfigError: `frames` is less than what is done.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    if frames is not None and frames != opened.experiment.frames:
        _change_frames(opened, frames)
    return drive(opened, progress, on_report, callbacks)


def open_run(experiment: Experiment, run: str | os.PathLike[str] | None, *, resume: bool) -> Run:
    """The folder in which an experiment is trained, as `train` opens or makes it.

    Raises:
        RunError: as `train` does. ConfigError: no Experiment, or a device or logger that is not there; no folder was
            made.
    """
    if not isinstance(experiment, Experiment):
        raise ConfigError(
            "an Experiment is needed, as Experiment.compose and Experiment.from_json make; "
            f"got {type(experiment).__name__}"
        )
    if resume and run is None:
        raise RunError("resume=True needs the run's folder: train(experiment, run=..., resume=True)")
    check_loggers(experiment.loggers)
    check_device(experiment.device)
    if resume and run is not None and is_run(run):
        opened = Run.open(run)
        check_same(opened, experiment)
        return opened
    return Run.create(_free_path(experiment) if run is None else run, experiment)


def drive(
    run: Run,
    progress: bool,
    on_report: Sequence[Callable[[Report], None]],
    callbacks: Sequence[TrainingCallback],
    *,
    is_new: bool = False,
) -> Run:
    """A Trainer of the run, driven to its end; requests to save and pause are heeded between iterations.

    Args:
        is_new: the folder was made just now: it is removed again when the training cannot begin.
    """
    status = run.status()
    job = os.environ.get(JOB_VARIABLE)
    if status["state"] == "complete" and status.get("frames_total") == run.experiment.frames:
        if job and progress:  # the notebook reads as if this attempt at it had trained
            Progress(run.experiment).recall(read_lines(run.path / METRICS))
        return run
    if job:
        write_atomically(Path(job) / TRAINING, json.dumps({"run": str(run.path.absolute())}) + "\n", sync=False)
    with _trainer(run, callbacks, is_new) as trainer, _heeding_signals(trainer):
        clear_requests(run.path)
        display = Progress(run.experiment, frames=trainer.frames) if progress else None
        try:
            for report in trainer:
                if display is not None:
                    display.show(report)
                for callback in on_report:
                    callback(report)
                handle_requests(trainer)
        finally:
            if display is not None:
                reason = trainer.stopped_because
                display.close(how_it_ended(trainer.state, trainer.frames, run.experiment, reason=reason))
    if trainer.state == "stopped":
        _tell_of_stop(run, trainer)
    return run


def _trainer(run: Run, callbacks: Sequence[TrainingCallback], is_new: bool) -> Trainer:
    try:
        return Trainer(run.experiment, run, callbacks)
    except Exception:  # what was asked cannot be done: corrected, it may have the same name
        if is_new and not is_locked(run.path / LOCK):  # another process may train in it
            run.discard_unbegun()
        raise


def _tell_of_stop(run: Run, trainer: Trainer) -> None:
    """Ends the notebook of a batch job; tells a person at a notebook what the end of the allocation did."""
    where = f"{run.path}: stopped at iteration {trainer.iteration}, {trainer.frames:,} frames, and saved"
    because = f"{where}, since {trainer.stopped_because}" if trainer.allocation_ends else where
    if os.environ.get(JOB_VARIABLE):
        kind = AllocationEndsError if trainer.allocation_ends else StoppedError
        raise kind(f"{because}; the batch job goes on from there when it is run again")
    if trainer.allocation_ends:
        print(f"{because}; `marlnb resume {run.path}`, or train(..., resume=True), goes on from there", file=sys.stderr)


@contextmanager
def _heeding_signals(trainer: Trainer) -> Iterator[None]:
    """In the main thread a signal asks the trainer to stop, and a second interrupt interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = 0

    def heed(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        trainer.ask_to_stop(name)
        hint = "; interrupt again to stop at once" if number == signal.SIGINT else ""
        os.write(2, f"\n{name}: stopping after this iteration, which is then saved{hint}\n".encode())

    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, heed) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _change_frames(run: Run, frames: int) -> None:
    done = int(run.status()["frames"])
    if frames < max(done, 1):
        raise ConfigError(f"{run.path} has {done} frames already; frames={frames} would be less than that")
    with RunLock(run.path / LOCK):
        experiment = replace(run.experiment, frames=frames)
        write_atomically(run.path / EXPERIMENT, json.dumps(experiment.to_json(), indent=2) + "\n")
        run.log_event(f"frames changed from {run.experiment.frames} to {frames}")
        run.experiment = experiment


def check_same(run: Run, experiment: Experiment) -> None:
    """Raises RunError, with the options that differ, unless the run is of this experiment."""
    theirs, mine = _flat(run.experiment.to_json()), _flat(experiment.to_json())
    differing = [
        f"{key}: {theirs.get(key, '(none)')} there, {mine.get(key, '(none)')} here"
        for key in sorted({*theirs, *mine})
        if theirs.get(key) != mine.get(key)
    ]
    if differing:
        hint = "; resume(run, frames=...) changes its length" if any(d.startswith("frames:") for d in differing) else ""
        raise RunError(f"{run.path} is a run of another experiment; {'; '.join(differing)}{hint}")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {name: item for key, part in value.items() for name, item in _flat(part, f"{prefix}.{key}").items()}
    return {prefix.lstrip("."): value}


def _free_path(experiment: Experiment) -> Path:
    env, algorithm = re.split("[/:]", experiment.env.name)[-1], experiment.algorithm.name
    stem = f"{env}-{algorithm}-{experiment.seed}"
    return next(path for n in itertools.count(1) if not (path := Path("runs") / f"{stem}-{n}").exists())

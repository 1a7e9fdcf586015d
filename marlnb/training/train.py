"""train and resume: run a Trainer to its end and show its progress."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from marlnb.display.formatting import marlnb_command
from marlnb.display.notice import print_notice
from marlnb.envs.device import check_device
from marlnb.envs.workers.closing import closing_pools
from marlnb.errors import AllocationEndsError, ConfigError, RunError, StoppedError
from marlnb.experiment import Experiment
from marlnb.training.control import clear_requests, handle_requests
from marlnb.training.limits import CHANGEABLE, LIMIT_OPTIONS, Trained, limits_of, reached_limit
from marlnb.training.reporting.loggers import check_loggers
from marlnb.training.reporting.progress import Progress, describe_end
from marlnb.training.reporting.report import Report
from marlnb.training.runs.comparable import check_same
from marlnb.training.runs.files import (
    EXPERIMENT,
    JOB_VARIABLE,
    LOCK,
    METRICS,
    STATUS,
    TRAINING,
    is_run,
    remove_temporaries,
    write_atomically,
)
from marlnb.training.runs.lock import RunLock, is_locked
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Run, opened_run
from marlnb.training.runs.run_folder import trust_training
from marlnb.training.runs.standalone import standalone
from marlnb.training.stopping import stopping_on_signals
from marlnb.training.trainer import Trainer, TrainingCallback

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
    """Trains until a limit of the experiment (frames, ...), its target return or a request to stop; returns the run.

    A file STOP in the run folder, SIGTERM, SIGUSR1, SIGHUP (its terminal was closed) or a first interrupt end the
    training after the current iteration, saved. A second interrupt ends it at once; the last checkpoint is complete. It
    also stops, saved, before its SLURM job ends.

    Args:
        experiment: what to train.
        run: the folder to create; None: `runs/<env>-<algorithm>-<seed>-<n>`.
        resume: continue an interrupted run of this experiment in the folder, return it if it is complete, or start one
            if there is none.
        progress: show a line with the progress.
        on_report: functions called with each iteration's Report.
        callbacks: called between iterations, such as `marlnb.RecordWhileTraining`; they do not change what is learned.
    Raises:
        RunError: the folder holds other files, a run of another experiment, or one that is being trained.
        ConfigError, EnvError: the experiment cannot be run; a folder created for it is deleted again.
        CheckpointError: a checkpoint cannot be written or read; earlier ones are complete.
        DivergedError: losses or weights are not finite.
        StoppedError: stopped on request in a batch job: the notebook ends here and is executed again later.
        AllocationEndsError: the same, because the job's time is nearly over.
    """
    is_new = run is None or not is_run(run)
    return drive(open_run(experiment, run, resume=resume), progress, on_report, callbacks, is_new=is_new)


def resume(
    run: RunLike,
    *,
    frames: int | None = None,
    max_iterations: int | None = None,
    max_minutes: float | None = None,
    max_agent_steps: int | None = None,
    device: str | None = None,
    trust: bool = False,
    progress: bool = True,
    on_report: Sequence[Callable[[Report], None]] = (),
    callbacks: Sequence[TrainingCallback] = (),
) -> Run:
    """Continues a run from its last checkpoint. Returns it at once if it is complete.

    Args:
        run: the run or its folder.
        frames: a new total length, to train a complete run further.
        max_iterations, max_minutes, max_agent_steps: new values of these limits.
        device: to continue on, such as "cpu" where there is no GPU; the run keeps it.
        trust: allow the code that another person's folder names; those of your own training runs need none.
        progress, on_report, callbacks: as in `train`.
    Raises:
        As `train`; limits and device stay as they were if the training cannot start.
        ConfigError: a new limit is less than has been trained.
        TrustError: the folder names code that the user does not trust; the message says which, and nothing was run.
    """
    opened = opened_run(run, trust=trust)
    if device is not None:
        check_device(device)
    given = dict(zip(CHANGEABLE, (frames, max_iterations, max_minutes, max_agent_steps, device), strict=True))
    before = opened.experiment
    changed = {name: value for name, value in given.items() if value not in (None, getattr(before, name))}
    if changed:
        _change(opened, changed)
    clear_requests(opened.path)
    return drive(opened, progress, on_report, callbacks, before=before)


def open_run(experiment: Experiment, run: str | os.PathLike[str] | None, *, resume: bool) -> Run:
    """Opens or creates the folder in which `train` trains an experiment.

    Raises:
        RunError: as in `train`.
        ConfigError: not an Experiment, or an unknown device or logger; no folder was created.
    """
    if not isinstance(experiment, Experiment):
        raise ConfigError(
            "experiment must be an Experiment, as Experiment.compose and Experiment.from_json return; "
            f"got {type(experiment).__name__}"
        )
    experiment = experiment.loaded()
    if resume and run is None:
        raise RunError("resume=True needs the run's folder: train(experiment, run=..., resume=True)")
    check_loggers(experiment.loggers)
    check_device(experiment.device)
    if resume and run is not None and is_run(run):
        # where the record cannot be written, a resumed job trusts it again
        trust_training(standalone(experiment), Path(run))
        opened = Run.open(run)
        check_same(opened, experiment)
        clear_requests(opened.path)
        return opened
    return Run.create(_free_path(experiment) if run is None else run, experiment)


@closing_pools()
def drive(
    run: Run,
    progress: bool,
    on_report: Sequence[Callable[[Report], None]],
    callbacks: Sequence[TrainingCallback],
    *,
    is_new: bool = False,
    before: Experiment | None = None,
) -> Run:
    """Runs a Trainer to its end. Requests to save and pause are handled between iterations.

    Args:
        is_new: the folder was created just now: it is deleted again if the training cannot start.
        before: what the run is of again if the training cannot start; None: it did not change.
    """
    status = run.status()
    job = os.environ.get(JOB_VARIABLE)
    if status["state"] == "complete" and _limits_in(status) == limits_of(run.experiment):
        with suppress(OSError):  # a kill while the status was written for the last time; the disk may be read-only
            remove_temporaries(run.path, [STATUS])
        if job and progress:  # the notebook looks as if this attempt had trained
            Progress(run.experiment).recall(read_rows(run.path / METRICS))
        return run
    if job:
        _name_run(job, run.path)
    with _trainer(run, callbacks, is_new, before, status) as trainer, stopping_on_signals([trainer.ask_to_stop]):
        display, first = Progress(run.experiment, frames=trainer.frames) if progress else None, trainer.iteration
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
                display.close(describe_end(trainer.state, trainer.trained, run.experiment, reason=reason))
    if progress and trainer.profiler is not None:
        print(trainer.profiler.summary)
    if trainer.state == "complete" and trainer.iteration == first:
        _report_no_training(run, trainer)
    if trainer.state == "stopped":
        _report_stop(run, trainer)
    return run


def _name_run(job: str, run: Path) -> None:
    """Tells a batch job which run its kernel trains; a run within the job's folder by its relative path."""
    inside = run.is_relative_to(job)
    content = {"run": str(run.relative_to(job) if inside else run), "job": job}
    write_atomically(Path(job) / TRAINING, json.dumps(content) + "\n", sync=False)


def _trainer(
    run: Run, callbacks: Sequence[TrainingCallback], is_new: bool, before: Experiment | None, status: Mapping[str, Any]
) -> Trainer:
    """The Trainer of a run. If it cannot start, the folder is what it was before the request, its `status` included."""
    try:
        return Trainer(run.experiment, run, callbacks)
    except BaseException:  # an interrupt too
        if not is_locked(run.path / LOCK):  # unless another process trains in it by now
            with suppress(OSError):  # a disk that is read-only by now, as the error says
                if is_new:  # the corrected experiment may use the same name
                    run.discard_unstarted()
                elif before is not None and before != run.experiment:
                    _write_experiment(run, before)
                    run.write_status(**status)
        raise


def _report_stop(run: Run, trainer: Trainer) -> None:
    """Ends the notebook of a batch job. Elsewhere, says that the allocation's end stopped the training."""
    message = f"{run.shown_path}: stopped at iteration {trainer.iteration}, {trainer.frames:,} frames, and saved"
    allocation_ends = trainer.end is not None and trainer.end.by_allocation
    if allocation_ends:
        message += f", because {trainer.stopped_because}"
    if os.environ.get(JOB_VARIABLE):
        kind = AllocationEndsError if allocation_ends else StoppedError
        raise kind(f"{message}; the batch job resumes from there when it is run again")
    if allocation_ends:
        print_notice(f"{message}; resume with `{marlnb_command('resume', run.shown_path)}` or train(..., resume=True)")


def _report_no_training(run: Run, trainer: Trainer) -> None:
    """Says which limit a resumed training run had reached before it began, and how to change it."""
    limit, target = reached_limit(run.experiment, trainer.trained), run.experiment.target_return
    if limit:
        name = limit.partition("=")[0]
        advice = f"{limit} is reached; change it with resume(run, {name}=...)"
    else:
        advice = f"target_return={target} is reached, which stays the end of this run; train a new one without it"
    print_notice(f"{run.shown_path} was not trained further: {advice}")


def _limits_in(status: Mapping[str, Any]) -> dict[str, Any]:
    """The limits with which the training in a status was run; files of earlier versions have the frames only."""
    return {**dict.fromkeys(LIMIT_OPTIONS), "frames": status.get("frames_total"), **status.get("limits", {})}


def _change(run: Run, changes: Mapping[str, Any]) -> None:
    experiment = replace(run.experiment, **changes)
    with RunLock(run.path / LOCK):
        done = _trained(run).by_limit
        for name, value in changes.items():
            if name in done and value < done[name]:
                amount = f"{round(done[name], 3)} {name.removeprefix('max_').replace('_', ' ')}"
                raise ConfigError(
                    f"{name}={value} is less than the {amount} that {run.shown_path} has been trained for"
                )
        _write_experiment(run, experiment)


def _write_experiment(run: Run, experiment: Experiment) -> None:
    write_atomically(run.path / EXPERIMENT, json.dumps(experiment.to_json(), indent=2) + "\n")
    earlier, run.experiment = run.experiment, experiment
    for name in CHANGEABLE:
        if (value := getattr(experiment, name)) != getattr(earlier, name):
            run.log_event(f"{name} changed from {getattr(earlier, name)} to {value}")


def _trained(run: Run) -> Trained:
    """How much the newest checkpoint has been trained; time and agent steps are 0 if the metrics lack its iteration."""
    newest = max(run.checkpoints, key=lambda checkpoint: checkpoint.iteration, default=None)
    if newest is None:
        return Trained()
    row = {row["iteration"]: row for row in read_rows(run.path / METRICS)}.get(newest.iteration, {})
    return Trained(newest.iteration, newest.frames, row.get("seconds") or 0, row.get("agent_steps") or 0)


def _free_path(experiment: Experiment) -> Path:
    env, algorithm = re.split("[/:]", experiment.env.name)[-1], experiment.algorithm.name
    stem = f"{env}-{algorithm}-{experiment.seed}"
    return next(path for n in itertools.count(1) if not (path := Path("runs") / f"{stem}-{n}").exists())

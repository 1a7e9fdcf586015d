"""Train several runs together: those that differ in their seed only form one batch, in this process or in several."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from marlnb.algorithms.configs.ddpg import IDDPGConfig
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.batch.job.signals import interrupt_on_signals
from marlnb.batch.trainings.launch import LOG, POLL_S, Outcome, discard_unstarted, failure, open_or_create, start_worker
from marlnb.batch.trainings.progress_display import PlannedTraining, TrainingsProgress
from marlnb.errors import ConfigError, EnvError, MarlnbError
from marlnb.experiment import Experiment
from marlnb.models.networks.stacking import MAX_ROWS
from marlnb.training.reporting.report import Report
from marlnb.training.runs.run import Run
from marlnb.training.together.joinable import check_builds_joinable, check_joinable
from marlnb.training.together.joined import grouped
from marlnb.training.together.train_together import train_together

WORKER = "marlnb.batch.trainings.worker_together"
Planned = TypeVar("Planned", bound=PlannedTraining)
Opened = Mapping[Run, PlannedTraining]


def groups_of_seeds(runs: Sequence[Planned]) -> list[list[Planned]]:
    """The runs that differ in their seed only, in their order."""
    return grouped(runs, lambda a, b: replace(a.experiment, seed=b.experiment.seed) == b.experiment)


def groups_together(runs: Sequence[PlannedTraining]) -> list[list[PlannedTraining]]:
    """`groups_of_seeds`, of runs that can advance together. Raises ConfigError: some of them cannot."""
    groups = groups_of_seeds(runs)
    for group in groups:
        check_joinable([run.experiment for run in group])
    return groups


class AfterTraining(Protocol):
    """A function of a module that is called with each run that was trained to its end, in the process that did."""

    __module__: str
    __qualname__: str

    def __call__(self, run: Run) -> None: ...


def do_nothing(run: Run) -> None:
    """As `AfterTraining`."""


def is_faster_together(experiment: Experiment) -> bool:
    """Whether several seeds of an experiment train in less time together.

    The rule is measured: with at most MAX_ROWS rows (agents' samples) in a minibatch, one product for eight seeds takes
    0.2 to 0.9 times as long as eight; larger ones are not joined.
    """
    facts, algorithm = experiment.env.facts, experiment.algorithm
    if not facts.batched or facts.n_agents is None or not isinstance(algorithm, (IPPOConfig, IDDPGConfig)):
        return False
    if isinstance(algorithm, IDDPGConfig):
        frames = algorithm.batch_size
    elif algorithm.n_minibatches:
        frames = experiment.iteration_frames // algorithm.n_minibatches
    else:
        frames = algorithm.minibatch_frames
    if frames * facts.n_agents > MAX_ROWS:
        return False
    try:
        check_joinable([experiment])
        check_builds_joinable(experiment)
    except (ConfigError, EnvError):
        return False
    return True


def run_together(
    folder: Path,
    runs: Sequence[PlannedTraining],
    display: TrainingsProgress,
    *,
    jobs: int,
    after: AfterTraining = do_nothing,
) -> list[Outcome]:
    """Trains each batch of runs, in `jobs` processes with their share of the cores; 1: in this process.

    A stop ends all, saved; a failure ends only its run.

    Args:
        after: called with each run that is complete.
    """
    outcomes: list[Outcome] = []
    with interrupt_on_signals():
        for group in groups_together(runs):
            for planned in group:
                display.start(planned)
            opened, new = dict[Run, PlannedTraining](), set[Run]()
            for planned in group:
                try:
                    path, is_new = open_or_create(folder, planned)
                    run = Run.open(path)
                except (MarlnbError, OSError) as error:  # the others continue
                    outcomes.append(failure(planned, error))
                    display.end(planned, str(outcomes[-1]))
                    continue
                opened[run] = planned
                new |= {run} if is_new else set()
            errors: dict[Run, str] = {}
            is_interrupted = False
            try:
                if jobs == 1 or not opened:
                    errors = _train_here(opened, display, after)
                else:
                    errors = _train_in_processes(opened, display, after, jobs)
            except KeyboardInterrupt:
                is_interrupted = True
            for run, planned in opened.items():
                outcome = _outcome(planned, run, errors.get(run, ""), is_interrupted=is_interrupted)
                if run in new:
                    discard_unstarted(run.path, outcome)
                display.end(planned, str(outcome))
                outcomes.append(outcome)
            if is_interrupted or any(outcome.end == "stopped" for outcome in outcomes):
                break
    return outcomes


def _train_here(opened: Opened, display: TrainingsProgress, after: AfterTraining) -> dict[Run, str]:
    """Returns, by run, why it failed."""

    def show(run: Run, report: Report) -> None:
        display.update(opened[run], report.frames)

    errors = {run: str(error) for run, error in train_together(list(opened), [show]).items()}
    for run in opened:
        if run not in errors and run.status()["state"] == "complete":
            try:
                after(run)
            except MarlnbError as error:
                errors[run] = str(error)
    return errors


def _train_in_processes(opened: Opened, display: TrainingsProgress, after: AfterTraining, jobs: int) -> dict[Run, str]:
    """Each process trains an equal part of the runs; its output is in `output.log` of its first run.

    Returns, by run, why it failed. Raises KeyboardInterrupt, once all have saved.
    """
    runs, n_jobs = list(opened), min(jobs, len(opened))
    bounds = [len(runs) * k // n_jobs for k in range(n_jobs + 1)]
    parts = [runs[start:stop] for start, stop in itertools.pairwise(bounds)]
    processes = [_start(part, slot, n_jobs, after) for slot, part in enumerate(parts)]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(POLL_S)
            for run, planned in opened.items():
                display.update(planned, int(run.status().get("frames", 0)))
    except KeyboardInterrupt:
        display.say("stopping: each run saves first; interrupt again to end at once")
        for process in processes:
            process.send_signal(signal.SIGTERM)
        _wait(processes)
        raise
    return {
        run: f"{run.status().get('error', 'it was not trained to its end')} (see {part[0].path / LOG})"
        for part, process in zip(parts, processes)
        for run in part
        if process.returncode or run.status()["state"] not in ("complete", "stopped")
    }


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    try:
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
            process.wait()


def _start(runs: Sequence[Run], slot: int, n_jobs: int, after: AfterTraining) -> subprocess.Popen[bytes]:
    """A process that trains some runs together."""
    words = [f"{after.__module__}:{after.__qualname__}", *(str(run.path) for run in runs)]
    return start_worker(WORKER, words, runs[0].path / LOG, slot, n_jobs, runs[0].experiment.device)


def _outcome(planned: PlannedTraining, run: Run, error: str, *, is_interrupted: bool) -> Outcome:
    status = run.status()
    if is_interrupted:
        return Outcome(planned, "stopped")
    if not error:
        return Outcome(planned, "complete" if status["state"] == "complete" else "stopped")
    return Outcome(planned, "failed", error)
